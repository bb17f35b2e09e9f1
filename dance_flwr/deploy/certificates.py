"""A private certificate authority, the SuperLink's certificate, and the keys of SuperNodes.

Nothing is overwritten, files come all or none, and only their owner can read them.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dance_flwr.disk import atomic_file, create_folder
from dance_flwr.errors import UserError

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.pem", "server.key"
# Nodes keep ca.crt, so it outlives many certificates of the server.
_CA_DAYS, _DAYS = 3650, 365
_CLOCK_DAYS = 1  # valid from a day ago, for nodes whose clock is behind
_DNS_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
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
        raise UserError(
            f"{path}: expected a certificate that is valid today, found one that ended on "
            f"{end:%Y-%m-%d}; renew it with the two commands of openssl in "
            "docs/deployment-by-hand.md, Renew the certificate"
        )


def make_certificates(
    folder: Path, hosts: Sequence[str], now: datetime | None = None
) -> Certificates:
    """Create an authority, valid for ten years, and a server certificate, valid for one.

    Parameters
    ----------
    folder : created if missing; receives ca.crt, ca.key, server.pem and server.key
    hosts : DNS names and IP addresses of the SuperLink, all in subjectAltName
    now : start of the validity; None for the current time

    Raises
    ------
    UserError : a host is neither a DNS name nor an IP address, or a file exists
    """
    start = now or datetime.now(UTC)
    names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
    paths = Certificates.of(folder)
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    name = _name("dance-flwr federation")
    ca = (
        _builder(name, name, ca_key.public_key(), start, _CA_DAYS, "key_cert_sign", "crl_sign")
        # It signs servers and no further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder(_name("SuperLink"), name, key.public_key(), start, _DAYS, "digital_signature")
        # Clients compare the address with these names, and not with the subject.
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # A stolen key serves a server alone.
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    _write_new(
        {
            paths.ca: ca.public_bytes(Encoding.PEM),
            paths.certificate: certificate.public_bytes(Encoding.PEM),
            paths.ca_key: _key_pem(ca_key),
            paths.key: _key_pem(key),
        }
    )
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
    UserError : one of the files exists already
    """
    # Why (decision 8): Flower authenticates nodes by such keys, which also sign in masked sums.
    key = ec.generate_private_key(ec.SECP384R1())
    public = path.with_name(f"{path.name}.pub")
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    _write_new({path: private, public: line})
    return public


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


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_new(files: Mapping[Path, bytes]) -> None:
    """Write all of these files or none; every name is taken before anything is written."""
    taken: list[Path] = []
    try:
        for path in files:
            create_folder(path.parent)
            path.touch(exist_ok=False)  # not a link that somebody put there, either
            taken.append(path)
        for path, content in files.items():
            with atomic_file(path, lasting=True) as file:
                file.write(content)
    except BaseException as error:
        for path in taken:
            path.unlink(missing_ok=True)
        if not isinstance(error, FileExistsError):
            raise
        raise UserError(
            f"expected to write {error.filename} as a new file, found one; choose another place: "
            "a key that is overwritten is lost"
        ) from None
