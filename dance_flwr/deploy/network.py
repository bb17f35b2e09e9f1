"""What the SuperLink's port answers: TCP, TLS, Flower's health page, and the date it sends along."""

import http.client
import re
import socket
import ssl
from collections.abc import Callable
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
    """The facts of one visit to a port; what a failure left unknown is None.

    Attributes
    ----------
    host, port : where
    unreached : why no TCP connection came about; a UserError = no such address
    refused : why TLS failed; a UserError = the root certificates cannot be used
    certificate : what the server showed, also when it was refused
    roots : certificates that were trusted; empty = the system's
    health : HTTP status of `/health`
    ahead : seconds that this machine's clock is ahead of the server's, to about a second
    """

    host: str
    port: int
    unreached: Exception | None = None
    refused: Exception | None = None
    certificate: x509.Certificate | None = None
    roots: tuple[x509.Certificate, ...] = ()
    health: int | None = None
    ahead: float | None = None

    @property
    def secure(self) -> bool:
        """Whether TLS stands with the given root certificates."""
        return self.unreached is None and self.refused is None


def probe(superlink: str, root_certificates: Path | None, now: Clock, timeout: float) -> Probe:
    """Visit a SuperLink as a SuperNode would, without signing in; nothing changes there.

    Parameters
    ----------
    superlink : host:port
    root_certificates : PEM file; None = the system's
    now : this machine's clock
    timeout : seconds for each step
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
        except (
            OSError,
            UserError,
        ) as error:  # SSLError is an OSError; so is a connection that is closed
            return Probe(
                host, port, refused=error, certificate=_shown(host, port, timeout), roots=roots
            )
        with secure:
            shown = secure.getpeercert(binary_form=True)
            health, ahead = _health(secure, host, now)
    certificate = x509.load_der_x509_certificate(shown) if shown else None
    return Probe(host, port, certificate=certificate, roots=roots, health=health, ahead=ahead)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port"; an IPv6 address stands in brackets.

    Raises
    ------
    UserError : the text is anything else
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", text)
    if match is None or not 0 < int(match[3]) < 65536:
        raise UserError(
            f"--superlink: expected host:port, found {text!r}; for instance superlink.example.org:8000"
        )
    return match[1] or match[2], int(match[3])


def _context(root_certificates: Path | None) -> tuple[ssl.SSLContext, tuple[x509.Certificate, ...]]:
    if root_certificates is None:
        return ssl.create_default_context(), ()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as Flower's own client makes it
    try:
        content = root_certificates.read_bytes()
        roots = tuple(x509.load_pem_x509_certificates(content))
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (OSError, ValueError) as error:
        reason = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "no PEM certificate"
        )
        raise UserError(
            f"--root-certificates: expected the server operator's ca.crt, found {reason} at {root_certificates}; "
            "ask for the file again"
        ) from None
    return context, roots


def _shown(host: str, port: int, timeout: float) -> x509.Certificate | None:
    """Return the certificate that a server shows to someone who does not verify it."""
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
    """Ask for `/health`; return its status and how far this clock is ahead of the Date header."""
    before = now()
    try:
        connection.sendall(
            f"HEAD /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        response = http.client.HTTPResponse(connection, method="HEAD")
        response.begin()
    except (OSError, http.client.HTTPException):
        return None, None
    here = before + (now() - before) / 2
    try:
        # Whole seconds, which servers keep for up to a second more: the middle of what the header
        # can mean.
        there = parsedate_to_datetime(response.headers.get("Date", "")).astimezone(UTC) + timedelta(
            seconds=1
        )
    except (TypeError, ValueError):
        return response.status, None
    return response.status, (here - there).total_seconds()
