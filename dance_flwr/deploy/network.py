"""Probe a SuperLink's port: TCP, TLS, Flower's health page, and its Date header."""

import http.client
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

from cryptography import x509

from dance_flwr.errors import UserError

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class Probe:
    """The results of one connection to a port; None if a failure left them unknown.

    Attributes
    ----------
    host, port : address of the SuperLink
    unreached : why the TCP connection failed; a `UserError` if the address is invalid
    refused : why TLS failed; a `UserError` if the root certificates cannot be used
    certificate : the server's certificate, even if it was rejected
    roots : trusted certificates; empty for the system's
    health : HTTP status of `/health`
    clock_offset : seconds that this machine's clock is ahead of the server's, to about one
    """

    host: str
    port: int
    unreached: Exception | None = None
    refused: Exception | None = None
    certificate: x509.Certificate | None = None
    roots: tuple[x509.Certificate, ...] = ()
    health: int | None = None
    clock_offset: float | None = None

    @property
    def secure(self) -> bool:
        """Whether the TLS connection was established."""
        return self.unreached is None and self.refused is None


def addresses_of(hosts: Iterable[str]) -> list[str]:
    """Return the IP addresses of hosts, each once, in their order.

    Raises
    ------
    UserError : a host has none
    """
    addresses: list[str] = []
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no DNS query can hold
            raise UserError(
                f"expected that {host!r} has an address, found {error}; check the name, and this "
                "machine's DNS"
            ) from None
        addresses += [str(answer[4][0]) for answer in answers]
    return list(dict.fromkeys(addresses))


def probe(superlink: str, root_certificates: Path | None, now: Clock, timeout: float) -> Probe:
    """Connect to a SuperLink as a SuperNode would, without authenticating or side effects.

    Parameters
    ----------
    superlink : host:port
    root_certificates : PEM file; None for the system's
    now : this machine's clock
    timeout : seconds per step
    """
    try:
        host, port = parse_address(superlink)
    except UserError as error:
        return Probe("", 0, unreached=error)
    try:
        plain = socket.create_connection((host, port), timeout)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no DNS query can hold
        return Probe(host, port, unreached=error)
    with plain:
        roots: tuple[x509.Certificate, ...] = ()
        try:
            context, roots = _context(root_certificates)
            secure = context.wrap_socket(plain, server_hostname=host)
        except (OSError, UserError) as error:  # OSError: also SSLError and a closed connection
            certificate = _certificate(host, port, timeout)
            return Probe(host, port, refused=error, certificate=certificate, roots=roots)
        with secure:
            encoded = secure.getpeercert(binary_form=True)
            health, offset = _health(secure, host, now)
    certificate = x509.load_der_x509_certificate(encoded) if encoded else None
    return Probe(host, port, None, None, certificate, roots, health, offset)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port"; an IPv6 address must be in brackets.

    Raises
    ------
    UserError : the text has another form
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", text)
    if match is None or not 0 < int(match[3]) < 65536:
        raise UserError(
            f"--superlink: expected host:port, found {text!r}; "
            "for example superlink.example.org:8000"
        )
    return match[1] or match[2], int(match[3])


def _context(root_certificates: Path | None) -> tuple[ssl.SSLContext, tuple[x509.Certificate, ...]]:
    if root_certificates is None:
        return ssl.create_default_context(), ()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as in Flower's own client
    try:
        content = root_certificates.read_bytes()
        roots = tuple(x509.load_pem_x509_certificates(content))
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no PEM certificate"
        raise UserError(
            f"--root-certificates: expected the server operator's ca.crt, "
            f"found {reason} at {root_certificates}; ask for the file again"
        ) from None
    return context, roots


def _certificate(host: str, port: int, timeout: float) -> x509.Certificate | None:
    """Return a server's certificate without verifying it, to show it and not to trust it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError, ValueError),
        socket.create_connection((host, port), timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
    return None


def _health(connection: ssl.SSLSocket, host: str, now: Clock) -> tuple[int | None, float | None]:
    """Request `/health`; return its status and the offset of this clock from the Date header."""
    before = now()
    try:
        # The gate of a deployment passes this path and Flower's API alone (decision 10).
        request = f"HEAD /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        response = http.client.HTTPResponse(connection, method="HEAD")
        response.begin()
    except (OSError, http.client.HTTPException):
        return None, None
    local = before + (now() - before) / 2
    try:
        date = parsedate_to_datetime(response.headers.get("Date", "")).astimezone(UTC)
    except (TypeError, ValueError):
        return response.status, None
    # The header has whole seconds and may be cached for another second: use the middle of the two.
    return response.status, (local - date - timedelta(seconds=1)).total_seconds()
