"""Sign statements of nodes, and check them with public keys that did not come from the server.

A node signs with the ECDSA key that authenticates its SuperNode. Signed is a text that names its
purpose and its run, so that a signature is worth nothing for another purpose or in another run. A
reply holds its client's own signature, a request those of all clients, by node.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.app import ConfigRecord, Message, RecordDict

from dance_flwr.errors import UserError
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

# In every statement, so that a signature is worth nothing outside this app, or in a later form.
_LABEL = "dance-flwr statement 1"
# Why (decision 8): the keys that authenticate SuperNodes, which every node of a deployment has, are
# of P-384; SHA-384 is the hash of that strength.
_ALGORITHM = ec.ECDSA(hashes.SHA384())
_MAKE = "create one with `ssh-keygen -t ecdsa -b 384 -N '' -f FILE`"
_COLLECT = "create the file with `dance-flwr deploy peer-keys`"


def statement(purpose: str, **facts: Any) -> bytes:
    """Return the text to sign: canonical JSON of a label, the purpose and the facts."""
    # Canonical: the verifier builds the text from facts that it knows itself, and parses nothing.
    text = json.dumps([_LABEL, purpose, facts], sort_keys=True, default=bytes.hex)
    return text.encode()


def digest(purpose: str, **facts: Any) -> str:
    """Return the sha256 of a `statement` in hexadecimal digits."""
    return hashlib.sha256(statement(purpose, **facts)).hexdigest()


def sign(key: PrivateKey, text: bytes) -> bytes:
    """Return the signature of a text (ECDSA, SHA-384)."""
    return key.sign(text, _ALGORITHM)


def is_signed(text: bytes, signature: bytes, key: PublicKey) -> bool:
    """Whether a signature is that of this text under this key."""
    try:
        key.verify(signature, text, _ALGORITHM)
    except InvalidSignature:
        return False
    return True


def load_key(path: Path) -> PrivateKey:
    """Return a node's private key as Flower reads it."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UserError(
            f"expected the node's private key at {path}, found {error.strerror}; {_MAKE}"
        ) from None
    except TypeError:
        # What `cryptography` raises for a key that needs a passphrase.
        raise UserError(
            f"{path}: expected a key without a passphrase, which Flower cannot ask for, "
            f"found a protected one; {_MAKE}"
        ) from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(
            f"{path}: expected a private key in OpenSSH format, found {_format_of(path, error)}; "
            f"{_MAKE}"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        kind = type(key).__name__.removesuffix("PrivateKey").strip("_")
        raise UserError(f"{path}: expected an ECDSA key, found {kind}; {_MAKE}")
    return key


def load_public_key(line: bytes, source: str) -> PublicKey:
    """Return the key of a line `ecdsa-sha2-... BASE64 [comment]`."""
    try:
        key = load_ssh_public_key(line)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(
            f"{source}: expected a public ECDSA key in OpenSSH format, found another text; ask the "
            "node's operator for the .pub file"
        )
    return key


def line_of(key: PublicKey) -> bytes:
    """Return a public key as `ecdsa-sha2-... BASE64`."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def fingerprint_of(key: PublicKey) -> str:
    """Return the fingerprint of a public key as `ssh-keygen -l` prints it."""
    blob = base64.b64decode(line_of(key).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def peer_lines(publics: Mapping[int, PublicKey]) -> str:
    """Return a file of peer keys, a line `CLIENT ecdsa-sha2-... BASE64` per client."""
    _check_different(publics, "--out")
    return "".join(f"{client} {line_of(key).decode()}\n" for client, key in publics.items())


def read_peer_keys(path: Path) -> dict[int, PublicKey]:
    """Return client number -> public key of a file of peer keys; lines with `#` are comments."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise UserError(
            f"expected the keys of all nodes at {path}, found {reason}; {_COLLECT}"
        ) from None
    return dict(_parsed(text, str(path)))


@lru_cache(maxsize=4)  # a client in simulation reads the same file in every stage
def _parsed(text: str, path: str) -> Mapping[int, PublicKey]:
    known: dict[int, PublicKey] = {}
    for place, line in enumerate(text.splitlines(), 1):
        number, _, rest = line.strip().partition(" ")
        if not number or number.startswith("#"):
            continue
        if not (number.isascii() and number.isdigit()) or int(number) in known:
            raise UserError(
                f"{path}, line {place}: expected a client's number that no other line has, found "
                f"{number!r}; {_COLLECT}"
            )
        known[int(number)] = load_public_key(rest.encode(), f"{path}, line {place}")
    # With one key for two clients, one node could sign as both.
    _check_different(known, path)
    return known


def _check_different(publics: Mapping[int, PublicKey], source: str) -> None:
    lines = [line_of(key) for key in publics.values()]
    twice = [client for client, line in zip(publics, lines, strict=True) if lines.count(line) > 1]
    if twice or not publics:
        wrong = f"the same key for clients {twice}" if twice else "none"
        raise UserError(f"{source}: expected one key per client, found {wrong}; {_COLLECT}")


def _format_of(path: Path, error: Exception) -> str:
    words = path.read_bytes().split()
    if words and words[0].startswith((b"ecdsa-", b"ssh-")):
        return "the public half"
    return str(error).splitlines()[0].rstrip(".") if str(error) else "another format"


class Claim(NamedTuple):
    """A signature, and the number of the client that claims to have made it."""

    client: int
    signature: bytes


def hello_text(run: int, node: int, client: int) -> bytes:
    """Return what a greeting says: this node is this client."""
    return statement("hello", run=run, node=node, client=client)


def keys_text(run: int, node: int, client: int, public: Sequence[bytes]) -> bytes:
    """Return what the setup of a sum says: these two public keys are this client's."""
    return statement("keys", run=run, node=node, client=client, keys=list(public))


def survivors_text(run: int, total: str, alive: Iterable[int], dead: Iterable[int]) -> bytes:
    """Return what a client says before it unmasks: whose vectors are in this sum.

    Parameters
    ----------
    total : the `sum_digest`
    alive, dead : the nodes whose vectors are in the sum, and those that left before
    """
    # Sorted: clients sign the set, in whatever order the server lists it.
    return statement("survivors", run=run, sum=total, alive=sorted(alive), dead=sorted(dead))


def sum_digest(
    shares: int,
    threshold: int,
    public: Mapping[int, Sequence[bytes]],
    clients: Mapping[int, int],
) -> str:
    """Return a digest of a sum: its parameters and all public keys, which are new in every sum.

    Parameters
    ----------
    public : node -> two public keys
    clients : node -> number of its client, as far as it is claimed
    """
    # Why (decision 8): keys are drawn anew for every sum, so that a signature counts in one alone.
    rows = [[node, clients.get(node, -1), *public[node]] for node in sorted(public)]
    return digest("sum", shares=shares, threshold=threshold, keys=rows)


def with_claim(message: Message, claim: Claim) -> Message:
    """Return a reply with the client's signature."""
    record = ConfigRecord({keys.CLIENT: claim.client, keys.SIGNATURE: claim.signature})
    return _with(message, record)


def read_claim(reply: Message) -> Claim | None:
    """Return the signature of a reply; None without a whole one."""
    record: Any = reply.content.config_records.get(keys.SIGNED, {}) if reply.has_content() else {}
    client, signature = record.get(keys.CLIENT), record.get(keys.SIGNATURE)
    # `type`, as True is an int for `isinstance`, and no number of a client.
    if type(client) is not int or not isinstance(signature, bytes):
        return None
    return Claim(client, signature)


def with_claims(message: Message, claims: Mapping[int, Claim]) -> Message:
    """Return a request with the signatures of all clients, by node."""
    record: dict[str, Any] = {
        keys.SIGNED_NODES: list(claims),
        keys.SIGNED_CLIENTS: [claim.client for claim in claims.values()],
        keys.SIGNATURES: [claim.signature for claim in claims.values()],
    }
    return _with(message, ConfigRecord(record))


def read_claims(message: Message) -> dict[int, Claim]:
    """Return node -> signature of a request; empty where there are none."""
    record: Any = message.content.config_records.get(keys.SIGNED, {})
    names = (keys.SIGNED_NODES, keys.SIGNED_CLIENTS, keys.SIGNATURES)
    nodes, clients, signatures = (list(record.get(name, [])) for name in names)
    claims = map(Claim, clients, signatures)
    # Lists of a server may differ in length: a node without a claim is refused by who checks it.
    return dict(zip(nodes, claims, strict=False))


def _with(message: Message, record: ConfigRecord) -> Message:
    return with_content(message, RecordDict(dict(message.content) | {keys.SIGNED: record}))
