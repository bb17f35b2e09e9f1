"""Probe a SuperLink's port: TCP, TLS, Flower's health page, and its Date header."""

import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from cryptography import x509

from dance_flwr.errors import UserError

Clock = Callable[[], datetime]
_SECONDS = 10.0  # of a step


@dataclass(frozen=True)
class Probe:
    """The results of one connection to a port; None if a failure left them unknown.

    Attributes
    ----------
    host, port : address of the SuperLink
    unreached : why the TCP connection failed; a `UserError` if the address is invalid
    refused : why TLS failed; a `UserError` if the root certificates cannot be used
    certificate : the server's certificate, even if it was rejected
    roots : the authority's certificates
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


def probe(superlink: str, root_certificates: Path, now: Clock) -> Probe:
    """Connect to a SuperLink as a SuperNode would, without authenticating or side effects.

    Parameters
    ----------
    superlink : host:port
    root_certificates : PEM file
    now : this machine's clock
    """
    try:
        host, port = parse_address(superlink)
    except UserError as error:
        return Probe("", 0, unreached=error)
    found = Probe(host, port)
    try:
        context, roots = tls_context(root_certificates)
        found = replace(found, roots=roots)
        # The gate of a deployment passes this path and Flower's API alone (decision 10).
        url, before = f"https://{superlink}/health", now()
        with httpx.stream("HEAD", url, verify=context, timeout=_SECONDS, trust_env=False) as answer:
            offset = _offset(answer.headers.get("Date", ""), before + (now() - before) / 2)
            tls = answer.extensions["network_stream"].get_extra_info("ssl_object")
            certificate = x509.load_der_x509_certificate(tls.getpeercert(True))
        return Probe(host, port, None, None, certificate, roots, answer.status_code, offset)
    except UserError as error:
        found = replace(found, refused=error)
    except (httpx.ConnectError, httpx.ConnectTimeout, UnicodeError) as error:
        # httpx names its own errors; UnicodeError: a name that no DNS query can hold.
        cause: Exception = error
        while isinstance(cause.__context__, Exception):
            cause = cause.__context__
        if not isinstance(cause, ssl.SSLError):
            return replace(found, unreached=cause)
        found = replace(found, refused=cause)
    except httpx.HTTPError:
        pass  # a server, but no answer
    # Not verified, to show what was refused.
    try:
        seen = ssl.get_server_certificate((host, port), timeout=_SECONDS)
    except (ssl.SSLError, ValueError):
        return found
    except OSError as error:
        return Probe(host, port, unreached=error)
    return replace(found, certificate=x509.load_pem_x509_certificate(seen.encode()))


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


def tls_context(root_certificates: Path) -> tuple[ssl.SSLContext, tuple[x509.Certificate, ...]]:
    """Return what trusts a file of certificates, and these; a `UserError` if it has none."""
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


def _offset(date: str, local: datetime) -> float | None:
    """Return how many seconds a clock is ahead of a Date header; None if there is none."""
    try:
        # Whole seconds, maybe cached for another one: use the middle of the two.
        server = parsedate_to_datetime(date).astimezone(UTC) + timedelta(seconds=1)
    except (TypeError, ValueError):
        return None
    return (local - server).total_seconds()
