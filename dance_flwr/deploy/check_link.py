"""Checks of the connection to the SuperLink: address, TLS, certificate, clock."""

import socket
import ssl
from datetime import datetime
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

from cryptography import x509

from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.network import Probe
from dance_flwr.deploy.node import Node
from dance_flwr.errors import UserError, counted

# Seconds; Flower's node authentication rejects signatures outside these limits.
MAX_FAST, MAX_SLOW = 5.0, 305.0
# Below Flower's limits, so that a clock that drifts is seen before its node is refused.
_WARN_FAST, _WARN_SLOW = 2.0, 60.0
# Long enough to renew it while nodes are still connected.
_WARN_DAYS = 30

# OpenSSL's X509_V_ERR_...
_NOT_YET, _EXPIRED, _NAME, _ADDRESS = 9, 10, 62, 64
# Codes of a chain that does not lead to an authority in the given file.
_SIGNER = (2, 7, 18, 19, 20, 21, 24, 30, 79)


def check_address(node: Node) -> Finding:
    """Check that the address resolves, its port accepts connections, and a SuperLink answers."""
    if not node.superlink:
        return unchecked("give --superlink HOST:PORT")
    probe = node.probe
    where = f"{probe.host}:{probe.port}"
    if probe.unreached is not None:
        return _unreached(probe, where)
    if not probe.secure:
        return ok(f"{where} accepts connections")
    # A port that accepts TLS may be any server's.
    if probe.health != 200:
        answer = "no HTTP answer" if probe.health is None else f"HTTP status {probe.health}"
        return problem(
            f"a SuperLink at {where} (status 200 for /health)",
            answer,
            "ask the server operator for address and port",
        )
    return ok(f"{where} answers as a SuperLink")


def check_tls(node: Node) -> Finding:
    """Check that the TLS handshake succeeds with the node's root certificates."""
    if not node.superlink or node.probe.unreached is not None:
        return unchecked("the SuperLink was not reached")
    probe = node.probe
    if probe.refused is None:
        by = (
            f"by {node.root_certificates}"
            if node.root_certificates
            else "by the system's authorities"
        )
        return ok(f"certificate accepted, signed {by}")
    # Of the operator's own file, and no fault of the connection.
    if isinstance(probe.refused, UserError):
        raise probe.refused
    if isinstance(probe.refused, ssl.SSLCertVerificationError):
        return _refused(probe.refused, probe, node.root_certificates)
    return problem(
        f"TLS at {probe.host}:{probe.port}",
        f"none ({_reason(probe.refused)})",
        "ask the server operator whether the SuperLink was started with --ssl-certfile and not "
        "with --insecure, and whether a proxy between you and it intercepts TLS",
    )


def check_certificate(node: Node) -> Finding:
    """Check that the certificates of the SuperLink and its authority do not expire soon."""
    certificate = node.probe.certificate if node.superlink else None
    if certificate is None:
        return unchecked("no certificate was seen")
    ends = [
        (
            certificate.not_valid_after_utc,
            "the SuperLink's certificate",
            "the server operator must renew it",
        )
    ]
    ends += [
        (
            root.not_valid_after_utc,
            f"{node.root_certificates}",
            "ask the server operator for a new ca.crt",
        )
        for root in node.probe.roots
    ]
    # Whichever ends first; a certificate is worth nothing without its authority.
    end, what, action = min(ends, key=lambda row: row[0])
    days = (end - node.now()).total_seconds() / 86400
    if days < 0:
        return problem(f"{what} to hold", f"that it ended on {end:%Y-%m-%d}", action)
    if days < _WARN_DAYS:
        return warning(
            f"{what} to hold for {_WARN_DAYS} days or more",
            f"{counted(round(days), 'day')} ({end:%Y-%m-%d})",
            action,
        )
    return ok(f"{what} holds for {counted(round(days), 'day')}, until {end:%Y-%m-%d}")


def check_clock(node: Node) -> Finding:
    """Check that the clock is within the tolerance of Flower's node authentication."""
    probe = node.probe if node.superlink else None
    if probe is None or not probe.secure:
        return _clock_by_certificate(probe.certificate if probe else None, node.now())
    if probe.clock_offset is None:
        return unchecked(
            "the SuperLink sent no Date header; compare the clocks yourself, or use NTP on both"
        )
    side = "ahead of" if probe.clock_offset > 0 else "behind"
    differs = f"this clock {abs(probe.clock_offset):.0f} s {side} the server's"
    limits = f"at most {MAX_FAST:.0f} s ahead of the server's clock and {MAX_SLOW:.0f} s behind it"
    # The two limits differ: a signature from the future is refused much sooner than an old one.
    if probe.clock_offset >= MAX_FAST or probe.clock_offset <= -MAX_SLOW:
        return problem(
            limits, differs, "set the clock (NTP): Flower rejects signatures outside these limits"
        )
    if probe.clock_offset > _WARN_FAST or probe.clock_offset < -_WARN_SLOW:
        return warning(limits, differs, "set the clock (NTP) before it drifts further")
    return ok("agrees with the server's Date header to about a second")


def _unreached(probe: Probe, where: str) -> Finding:
    error = probe.unreached
    if isinstance(error, UserError):
        raise error
    # A SuperNode would connect through the proxy, so this failure proves nothing.
    if (getproxies().get("https") or getproxies().get("all")) and not proxy_bypass(probe.host):
        return warning(
            f"{where} to accept connections",
            f"{_reason(error)}, and in the environment a proxy that this check does not use",
            "a SuperNode connects through that proxy: read its log, or set NO_PROXY",
        )
    if isinstance(error, socket.gaierror):
        return problem(
            f"that {probe.host!r} has an address",
            _reason(error),
            "correct the name, or ask the server operator for it",
        )
    if isinstance(error, ConnectionRefusedError):
        action = "ask the server operator whether the SuperLink runs and listens on this port"
    else:
        action = (
            f"let your firewall pass outgoing TCP connections to port {probe.port}, "
            "and confirm the address with the server operator"
        )
    return problem(f"{where} to accept connections", _reason(error), action)


def _refused(error: ssl.SSLCertVerificationError, probe: Probe, roots: Path | None) -> Finding:
    certificate = probe.certificate
    if error.verify_code in (_EXPIRED, _NOT_YET):
        span = (
            f" ({certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d})"
            if certificate
            else ""
        )
        state = "expired" if error.verify_code == _EXPIRED else "not valid yet"
        return problem(
            "a certificate that is valid today",
            f"one that is {state}{span}",
            "the server operator must renew it; "
            "if the dates are right, this machine's clock is wrong",
        )
    if error.verify_code in (_NAME, _ADDRESS):
        return problem(
            f"a certificate for {probe.host!r}",
            f"one for {', '.join(_names(certificate)) or 'no name at all'}",
            "use one of these names in --superlink, "
            "or ask the server operator for a certificate with your name",
        )
    if error.verify_code in _SIGNER:
        signer = (
            f"one of {certificate.issuer.rfc4514_string()} with another key"
            if certificate
            else "another"
        )
        return problem(
            f"a certificate signed by {roots or 'an authority of the system'}",
            f"{signer} ({error.verify_message})",
            "ask the server operator for the ca.crt in use, and verify its sha256 by telephone",
        )
    return problem(
        "a certificate that verifies", error.verify_message, "show this line to the server operator"
    )


def _clock_by_certificate(certificate: x509.Certificate | None, now: datetime) -> Finding:
    if certificate is None:
        return unchecked("without a connection there is nothing to compare with")
    # Never ok: a year of validity says nothing of seconds.
    if certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return unchecked(
            "without TLS only this is known: the clock lies within the certificate's dates"
        )
    return unchecked(
        "without TLS only this is known: the clock lies outside the certificate's dates"
    )


def _names(certificate: x509.Certificate | None) -> list[str]:
    if certificate is None:
        return []
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _reason(error: Exception | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str((isinstance(error, OSError) and error.strerror) or error or "no reason")
