"""A private certificate authority, the SuperLink's certificate, and the keys of SuperNodes.

Nothing is overwritten: files are new, all of them or none, and only their owner can read keys.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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

from dance_flwr.disk import write_new
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.signatures import fingerprint_of, load_public_key, peer_lines

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.pem", "server.key"
_CA_DAYS = 3650  # nodes keep ca.crt, so it outlives many certificates of the server
_CLOCK_DAYS = 1  # valid from a day ago, for nodes whose clock is behind
_DNS_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_PRIVATE, _PUBLIC = 0o600, 0o644
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class Certificates:
    """Paths of the TLS files of a SuperLink.

    Attributes
    ----------
    ca : certificate of the authority, the only file that nodes receive
    ca_key : key that signs certificates; the server operator keeps it, preferably off the server
    certificate, key : files for the SuperLink's command line
    """

    ca: Path
    ca_key: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> "Certificates":
        """Return the paths of the files that `make_certificates` writes to a folder."""
        return cls(*(folder / name for name in (CA, CA_KEY, SERVER, SERVER_KEY)))


def check_valid(certificates: Certificates) -> None:
    """Refuse a server certificate that has ended, before anything fails for that reason."""
    path = certificates.certificate
    found = x509.load_pem_x509_certificate(path.read_bytes())
    if (end := found.not_valid_after_utc) < datetime.now(UTC):
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = " ".join(f"--host {name.value}" for name in names)
        raise UserError(
            f"{path}: expected a certificate that is valid today, found one that ended on "
            f"{end:%Y-%m-%d}; renew it with `dance-flwr deploy certificates {hosts} --authority "
            f"{path.parent} --out renewed`, for which {CA_KEY} must be there, and replace {SERVER} "
            f"and {SERVER_KEY}"
        )


def make_certificates(
    folder: Path,
    hosts: Sequence[str],
    days: int = 365,
    *,
    authority: Path | None = None,
    now: datetime | None = None,
) -> Certificates:
    """Create a server certificate, and the authority that signs it unless there is one.

    Parameters
    ----------
    folder : created if missing; receives server.pem and server.key, ca.crt, and ca.key of a new
        authority
    hosts : DNS names and IP addresses of the SuperLink, all in subjectAltName
    days : validity of the server's certificate; a new authority is valid for ten years, or `days`
        if that is longer
    authority : folder of ca.crt and ca.key, so that nodes keep their ca.crt; None for a new one
    now : start of the validity; None for the current time

    Raises
    ------
    UserError : a host is neither a DNS name nor an IP address, `days` is below 1, a file exists, or
        the authority's files are unreadable, do not match, or expire before the certificate
    """
    start, names = now or datetime.now(UTC), _alternative_names(hosts, days)
    paths, files = Certificates.of(folder), {}
    if authority is None:
        ca_key = ec.generate_private_key(ec.SECP384R1())
        name, lifetime = _name("dance-flwr federation"), max(_CA_DAYS, days)
        ca = (
            _builder(name, name, ca_key.public_key(), start, lifetime, "key_cert_sign", "crl_sign")
            # It signs servers and no further authorities.
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(ca_key, hashes.SHA384())
        )
        files[paths.ca_key] = (_key_pem(ca_key), _PRIVATE)
    else:
        ca, ca_key = _read_authority(authority)
        paths = replace(paths, ca_key=authority / CA_KEY)
        if start + timedelta(days=days) > ca.not_valid_after_utc:
            raise UserError(
                f"{authority / CA}: expected an authority that holds for {days} days more, "
                f"found one that ends on {ca.not_valid_after_utc:%Y-%m-%d}; "
                f"use fewer --days, or create a new authority and distribute its {CA}"
            )
    key = ec.generate_private_key(ec.SECP384R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder(_name("SuperLink"), ca.subject, key.public_key(), start, days, "digital_signature")
        # Clients compare the address with these names, and not with the subject.
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # A stolen key serves a server alone.
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    files[paths.ca] = (ca.public_bytes(Encoding.PEM), _PUBLIC)
    files[paths.key] = (_key_pem(key), _PRIVATE)
    files[paths.certificate] = (certificate.public_bytes(Encoding.PEM), _PUBLIC)
    _write_new(files)
    return paths


def make_key(path: Path) -> Path:
    """Create a SuperNode's ECDSA P-384 key pair in OpenSSH format: `path` and `path`.pub.

    Equivalent to `ssh-keygen -t ecdsa -b 384 -N "" -f PATH`: `flower-supernode
    --auth-supernode-private-key` reads the private key, `flwr supernode register` the public one.
    It has no passphrase, as Flower could not ask for one.

    Returns
    -------
    path of the public key

    Raises
    ------
    UserError : one of the files exists already, or cannot be written
    """
    # Why (decision 8): Flower authenticates nodes by such keys, which also sign in masked sums.
    key = ec.generate_private_key(ec.SECP384R1())
    public = path.with_name(f"{path.name}.pub")
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    _write_new({path: (private, _PRIVATE), public: (line, _PUBLIC)})
    return public


def write_peer_keys(out: Path, publics: Sequence[Path]) -> list[str]:
    """Write the public keys of clients 0, 1, ... to a new file; return their fingerprints.

    With this file, nodes check the signatures of all others.

    Parameters
    ----------
    publics : the .pub files that `make_key` wrote at each node, in the order of client numbers

    Raises
    ------
    UserError : a file is missing or no public key, two are the same, or `out` exists
    """
    loaded = {}
    for client, path in enumerate(publics):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"expected a node's public key at {path}, found {error.strerror}; ask the node's "
                "operator for the .pub file"
            ) from None
        loaded[client] = load_public_key(content, str(path))
    head = "# The public key of every client: its number, then the line of its node's .pub file.\n"
    # Public keys are no secret, so the umask decides.
    _write_new({out: ((head + peer_lines(loaded)).encode(), 0o666)})
    return [fingerprint_of(key) for key in loaded.values()]


def _alternative_names(hosts: Sequence[str], days: int) -> x509.SubjectAlternativeName:
    if days < 1:
        raise UserError(f"--days: expected 1 or more, found {days}; 365 is usual")
    if not hosts:
        raise UserError(
            "--host: expected the DNS names and IP addresses of the SuperLink, found none; "
            "give at least one"
        )
    return x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])


def _general_name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(host))
    labels = host.split(".")
    # A last label of digits is a mistyped IP address, never a name.
    is_name = not labels[-1].isdigit() and all(map(_DNS_LABEL.fullmatch, labels))
    if len(host) > 253 or not is_name:
        raise UserError(
            f"--host: expected a DNS name or an IP address, found {host!r}; "
            "omit https://, the port and spaces"
        )
    return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    days: int,
    *purposes: str,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(**{name: name in purposes for name in _USAGES})
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(start - timedelta(days=_CLOCK_DAYS))
        .not_valid_after(start + timedelta(days=days))
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _read_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        ca = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{folder}: expected {CA} and {CA_KEY} of an authority, found {error}; "
            "name the folder in which `dance-flwr deploy certificates` wrote them"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise UserError(
            f"{folder}: expected {CA_KEY} to be the key of {CA}, found another key; "
            "restore the pair"
        )
    return ca, key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_new(files: Mapping[Path, tuple[bytes, int]]) -> None:
    # `lexists`: a link that leads nowhere is in the way as well.
    present = [str(path) for path in files if os.path.lexists(path)]
    if present:
        raise UserError(
            f"expected none of the files to exist, found {', '.join(present)}; "
            "choose another place: a key that is overwritten is lost"
        )
    try:
        write_new(files)
    except OSError as error:
        raise UserError(
            f"expected to write {error.filename}, found {error.strerror}; choose another place"
        ) from None
