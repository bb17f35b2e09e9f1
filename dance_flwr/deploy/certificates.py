"""A certificate authority of one's own, the SuperLink's certificate, and the keys that SuperNodes
sign with.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dance_flwr.errors import UserError

__all__ = ["Certificates", "make_certificates", "make_key", "renew_certificate"]

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.pem", "server.key"
_CA_DAYS = 3650  # nodes hold ca.crt: it outlives many certificates of the server
_CLOCK_DAYS = 1  # valid from a day ago, for nodes whose clocks are behind
_DNS_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_PRIVATE, _PUBLIC = 0o600, 0o644


@dataclass(frozen=True)
class Certificates:
    """Where the files of a SuperLink's TLS lie.

    Attributes
    ----------
    ca : certificate of the authority; every node gets a copy of it, and of nothing else
    ca_key : signs further certificates; stays with the server operator, best away from the server
    certificate, key : what the SuperLink is started with
    """

    ca: Path
    ca_key: Path
    certificate: Path
    key: Path


def make_certificates(
    folder: Path, hosts: Sequence[str], days: int = 365, *, now: datetime | None = None
) -> Certificates:
    """Make a certificate authority and a server certificate signed by it; keys are readable by
    their owner only.

    Parameters
    ----------
    folder : made if absent; receives ca.crt, ca.key, server.pem and server.key
    hosts : DNS names and IP addresses under which nodes reach the SuperLink, all in subjectAltName
    days : days until the server's certificate ends; the authority's holds for ten years, or longer
        if `days` asks
    now : when the certificates begin, the present when left out

    Raises
    ------
    UserError : a host is neither a DNS name nor an IP address, `days` is below 1, or a file exists
        already
    """
    start = now or datetime.now(UTC)
    names = _alternative_names(hosts, days)
    made = Certificates(*(folder / name for name in (CA, CA_KEY, SERVER, SERVER_KEY)))
    key = ec.generate_private_key(ec.SECP384R1())
    authority = _authority(key, start, max(_CA_DAYS, days))
    server_key, server = _server(authority, key, names, start, days)
    _write_new(
        {
            made.ca_key: (_key_pem(key), _PRIVATE),
            made.ca: (authority.public_bytes(Encoding.PEM), _PUBLIC),
            made.key: (_key_pem(server_key), _PRIVATE),
            made.certificate: (server.public_bytes(Encoding.PEM), _PUBLIC),
        }
    )
    return made


def renew_certificate(
    folder: Path,
    authority: Path,
    hosts: Sequence[str],
    days: int = 365,
    *,
    now: datetime | None = None,
) -> Certificates:
    """Make a server certificate signed by an authority made before, so that nodes keep their
    ca.crt.

    Parameters
    ----------
    folder : made if absent; receives ca.crt (a copy), server.pem and server.key
    authority : the folder of ca.crt and ca.key
    hosts, days, now : as for `make_certificates`

    Raises
    ------
    UserError : as for `make_certificates`, or the authority's files cannot be read or do not belong
        together
    """
    start = now or datetime.now(UTC)
    names = _alternative_names(hosts, days)
    ca, key = _read_authority(authority)
    if start + timedelta(days=days) > ca.not_valid_after_utc:
        raise UserError(
            f"{authority / CA}: expected an authority that holds for {days} days more, found one that ends on "
            f"{ca.not_valid_after_utc:%Y-%m-%d}; ask for fewer --days, or make a new authority and hand out its {CA}"
        )
    made = Certificates(folder / CA, authority / CA_KEY, folder / SERVER, folder / SERVER_KEY)
    server_key, server = _server(ca, key, names, start, days)
    _write_new(
        {
            made.ca: (ca.public_bytes(Encoding.PEM), _PUBLIC),
            made.key: (_key_pem(server_key), _PRIVATE),
            made.certificate: (server.public_bytes(Encoding.PEM), _PUBLIC),
        }
    )
    return made


def make_key(path: Path) -> Path:
    """Make a SuperNode's key pair: ECDSA P-384, private in OpenSSH format at `path`, public at
    `path`.pub.

    The same as `ssh-keygen -t ecdsa -b 384 -N "" -f PATH`: what `flower-supernode
    --auth-supernode-private-key` reads and `flwr supernode register` registers.

    Returns
    -------
    the public key's file

    Raises
    ------
    UserError : one of the files exists already, or cannot be written
    """
    key = ec.generate_private_key(ec.SECP384R1())
    public = path.with_name(f"{path.name}.pub")
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    _write_new({path: (private, _PRIVATE), public: (line, _PUBLIC)})
    return public


def _alternative_names(hosts: Sequence[str], days: int) -> x509.SubjectAlternativeName:
    if days < 1:
        raise UserError(f"--days: expected 1 or more, found {days}; a year is usual")
    if not hosts:
        raise UserError(
            "--host: expected the DNS names and IP addresses of the SuperLink, found none; give at least one"
        )
    return x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        labels = host.split(".")
    # A last label of digits alone is a mistyped IP address, never a name.
    if (
        len(host) > 253
        or labels[-1].isdigit()
        or not all(_DNS_LABEL.fullmatch(label) for label in labels)
    ):
        raise UserError(
            f"--host: expected a DNS name or an IP address, found {host!r}; leave out https://, the port and spaces"
        )
    return x509.DNSName(host)


def _authority(key: ec.EllipticCurvePrivateKey, start: datetime, days: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dance-flwr federation")])
    usage = {"key_cert_sign": True, "crl_sign": True}
    return (
        _builder(name, name, key.public_key(), start, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def _server(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    start: datetime,
    days: int,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SuperLink")])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = (
        _builder(name, authority.subject, key.public_key(), start, days)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage({"digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    return key, made


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(days=_CLOCK_DAYS))
        .not_valid_after(start + timedelta(days=days))
    )


def _usage(wanted: Mapping[str, bool]) -> x509.KeyUsage:
    names = (
        *(
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
        ),
        *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**dict.fromkeys(names, False) | dict(wanted))


def _read_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        ca = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{folder}: expected {CA} and {CA_KEY} of an authority, found {error}; "
            "name the folder in which `dance-flwr deploy certificates` made them"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise UserError(
            f"{folder}: expected {CA_KEY} to be the key of {CA}, found another key; restore the pair"
        )
    return ca, key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_new(files: Mapping[Path, tuple[bytes, int]]) -> None:
    """Write files that must not exist yet, each with its mode from the first byte on; all of them
    or none.
    """
    present = [str(path) for path in files if os.path.lexists(path)]
    if present:
        raise UserError(
            f"expected none of the files to exist, found {', '.join(present)}; "
            "choose another place: a key that is overwritten is lost"
        )
    written: list[Path] = []
    try:
        for path, (content, mode) in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UserError(
            f"expected to write {path}, found {error.strerror}; choose another place"
        ) from None
