"""Checks of the node's key: its file, its type, and its registration at the SuperLink."""

import base64
import hashlib
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.errors import UserError

_MAKE = "create one with `dance-flwr deploy key --out FILE`"


def check_key(node: Node) -> Finding:
    """The key is readable, private, of a type that Flower accepts, and matches its public half."""
    if node.key is None:
        return unchecked("give --key FILE, the node's private key")
    key = load_key(node.key)
    mode = stat.S_IMODE(node.key.stat().st_mode)
    if mode & 0o077:
        return problem(
            "a key that only its owner can read (mode 600)",
            f"mode {mode:o} of {node.key}",
            f"chmod 600 {node.key}; "
            "if others had access to this machine, create and register a new key",
        )
    beside = node.key.with_name(f"{node.key.name}.pub")
    if beside.is_file() and beside.read_bytes().split()[1:2] != _line(key).split()[1:2]:
        return warning(
            f"{beside.name} to be the public half of {node.key.name}",
            "another key",
            f"before you send it: ssh-keygen -y -f {node.key} > {beside}",
        )
    return ok(f"ECDSA {key.curve.name}, {public_fingerprint(key)}, private to its owner")


def check_registration(node: Node) -> Finding:
    """The SuperLink knows the key; the request has no side effects."""
    if node.key is None:
        return unchecked("give --key FILE, the node's private key")
    key = load_key(node.key)
    line = f"flwr supernode register {node.key.name}.pub {node.connection}"
    if not node.superlink or not node.probe.secure:
        return unchecked(
            "needs a SuperLink reached over TLS; "
            f"the server operator registers the key with: {line}"
        )
    from dance_flwr.deploy.registration import is_registered

    roots = node.root_certificates.read_bytes() if node.root_certificates else None
    if is_registered(node.superlink, roots, key):
        return ok("the SuperLink knows this key")
    return problem(
        f"the SuperLink to know the key {public_fingerprint(key)}",
        "that it does not",
        f"send {node.key.name}.pub to the server operator, who runs: {line}",
    )


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return a node's private key as Flower reads it.

    Raises
    ------
    UserError : the file is missing, unreadable or protected by a passphrase, or the key is of
        another type
    """
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UserError(
            f"expected the node's private key at {path}, found {error.strerror}; {_MAKE}"
        ) from None
    except TypeError:
        raise UserError(
            f"{path}: expected a key without a passphrase, which Flower cannot ask for, "
            f"found a protected one; {_MAKE}"
        ) from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(
            f"{path}: expected a private key in OpenSSH format, found {_what(path, error)}; {_MAKE}"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        kind = type(key).__name__.removesuffix("PrivateKey").strip("_")
        raise UserError(f"{path}: expected an ECDSA key, found {kind}; {_MAKE}")
    return key


def public_fingerprint(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the fingerprint of the public half as `ssh-keygen -l` prints it."""
    blob = base64.b64decode(_line(key).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _line(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def _what(path: Path, error: Exception) -> str:
    if path.read_bytes().split()[:1] and path.read_bytes().split()[0].startswith(
        (b"ecdsa-", b"ssh-")
    ):
        return "the public half"
    return str(error).splitlines()[0].rstrip(".") if str(error) else "another format"
