"""Sign statements of nodes, and check them with public keys that did not come from the server.

A node signs with the ECDSA key that authenticates its SuperNode. The signed text names its purpose
and its run, so that no signature is valid for another purpose or run. A reply holds the signature
of its client, a request those of all clients, by node.

`SumSigner` has the two signed rounds of Bonawitz et al. 2017, "Practical Secure Aggregation",
against a server that deviates: public keys are signed, so that the server can neither replace them
nor invent clients, and clients sign who is in the sum before they unmask it, so that all unmask the
same one. In the node's configuration `signing-key` names its own key, `peer-keys` those of all
clients. A node without `peer-keys` demands no signatures.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.app import ConfigRecord, Context, Message, RecordDict

from dance_flwr.config.paths import state_root
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    SECAGG_STATE,
    STATE_SHARES,
    STATE_THRESHOLD,
    SecAggKey,
)
from dance_flwr.federation.node_config import client_number
from dance_flwr.federation.secagg.sums import digest, refusal, statement
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

# Why (decision 8): the keys that authenticate SuperNodes are of P-384; SHA-384 has that strength.
_ALGORITHM = ec.ECDSA(hashes.SHA384())
_MAKE = "create one with `ssh-keygen -t ecdsa -b 384 -N '' -f FILE`"
_COLLECT = "create the file with `dance-flwr deploy admit`"
_FILES = (keys.SIGNING_KEY, keys.PEER_KEYS)
_STATE = "dance-flwr-signed"  # what this client signed in the sum that is going on
_SUM, _NODES, _CLIENTS, _SURVIVORS = "sum", "nodes", "clients", "survivors"


def sign(key: PrivateKey, text: bytes) -> bytes:
    """Return the signature of a text (ECDSA, SHA-384)."""
    return key.sign(text, _ALGORITHM)


def is_signed(text: bytes, signature: bytes, key: PublicKey) -> bool:
    """Whether the signature of a text is valid under this key."""
    try:
        key.verify(signature, text, _ALGORITHM)
    except InvalidSignature:
        return False
    return True


def load_key(path: Path) -> PrivateKey:
    """Return a node's private key as Flower reads it."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
        found = type(key).__name__.removesuffix("PrivateKey").strip("_")
    except OSError as error:
        raise UserError(
            f"expected the node's private key at {path}, found {error.strerror}; {_MAKE}"
        ) from None
    except TypeError:
        found = "one with a passphrase"
    except (ValueError, UnsupportedAlgorithm) as error:
        found = _format_of(path, error)
    raise UserError(
        f"{path}: expected an ECDSA key, found {found}; it is in OpenSSH format, without a "
        f"passphrase: {_MAKE}"
    )


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
    lines = [line_of(key) for key in known.values()]
    twice = [client for client, line in zip(known, lines, strict=True) if lines.count(line) > 1]
    if twice or not known:
        wrong = f"the same key for clients {twice}" if twice else "none"
        raise UserError(f"{path}: expected one key per client, found {wrong}; {_COLLECT}")
    return known


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
    """Return the statement of a greeting: this node is this client."""
    return statement("hello", run=run, node=node, client=client)


def keys_text(run: int, node: int, client: int, public: Sequence[bytes]) -> bytes:
    """Return the statement of a setup: these two public keys are this client's."""
    return statement("keys", run=run, node=node, client=client, keys=list(public))


def read_claim(reply: Message) -> Claim | None:
    """Return the signature of a reply; None if it is missing or incomplete."""
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
    # A server's lists may differ in length; the checks refuse a node without a claim.
    return dict(zip(nodes, claims, strict=False))


def _with(message: Message, record: ConfigRecord) -> Message:
    return with_content(message, RecordDict(dict(message.content) | {keys.SIGNED: record}))


@dataclass(frozen=True)
class Signer:
    """The identity of a node.

    Attributes
    ----------
    run, node, client : numbers of the run, of Flower's node and of the client
    key : its own; None = it signs nothing
    peers : client -> public key; empty = it demands nothing
    """

    run: int
    node: int
    client: int
    key: PrivateKey | None
    peers: Mapping[int, PublicKey]

    def signed(self, reply: Message, text: bytes) -> Message:
        """Return a reply with this node's signature of a text, if it has a key."""
        if self.key is None:
            return reply
        record = ConfigRecord({keys.CLIENT: self.client, keys.SIGNATURE: sign(self.key, text)})
        return _with(reply, record)

    def accepts(self, claim: Claim | None, text: bytes) -> bool:
        """Whether a claim is valid for a client with a known key."""
        key = self.peers.get(claim.client) if claim else None
        return bool(claim and key and is_signed(text, claim.signature, key))


def signer_of(message: Message, context: Context) -> Signer:
    """Read a node's keys from the files that its configuration names."""
    private, all_keys = (context.node_config.get(name, "") for name in _FILES)
    client = client_number(context.node_config)
    key = load_key(Path(str(private))) if private else None
    peers = read_peer_keys(Path(str(all_keys))) if all_keys else {}
    # A node that demands signatures must sign too, or its own check would fail in each sum.
    if peers and (key is None or peers.get(client) != key.public_key()):
        raise UserError(
            f"{keys.PEER_KEYS}: expected the public half of {keys.SIGNING_KEY} for client "
            f"{client} in {all_keys}, found another or none; correct --node-config, or collect "
            "the keys again with `dance-flwr deploy admit`"
        )
    return Signer(context.run_id, message.metadata.dst_node_id, client, key, peers)


def ledger_folder(node_config: Mapping[str, Any]) -> Path | None:
    """Return the folder of a node's ledgers; None for a simulated client.

    It is named by the node's signing key, else by the path of its data, and outside the client's
    folder, so that the ledgers outlive a client that is prepared again.
    """
    path = node_config.get(keys.DATA_PATH)
    # A simulated client keeps its ledgers in its folder, per run.
    if not path:
        return None
    if key := node_config.get(keys.SIGNING_KEY):
        name = fingerprint_of(load_key(Path(str(key))).public_key()).removeprefix("SHA256:")
    else:
        name = str(Path(str(path)).resolve())
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return state_root() / "nodes" / f"{'key' if key else 'path'}-{digest}"


def signed_hello(message: Message, context: Context, reply: Message) -> Message:
    """Return an answer to HELLO with the node's signature, if it has a key."""
    signer = signer_of(message, context)
    return signer.signed(reply, hello_text(signer.run, signer.node, signer.client))


def clients_of(nodes: Sequence[int], context: Context) -> list[int]:
    """Return the clients of these nodes, ascending; empty unless all signed keys of this sum."""
    signed: Any = context.state.config_records.get(_STATE, {})
    known = dict(zip(signed.get(_NODES, []), signed.get(_CLIENTS, []), strict=True))
    # A set with an unsigned client is known by its nodes only.
    return sorted(known[node] for node in nodes) if set(nodes) <= set(known) else []


def forget_signed(context: Context) -> None:
    """Forget what was signed in a sum that is over."""
    context.state.config_records.pop(_STATE, None)


class SumSigner:
    """Signs and checks the stages of one sum at one client."""

    def __init__(self, message: Message, context: Context) -> None:
        self._message, self._state = message, context.state.config_records
        self._signer = signer_of(message, context)

    def sign_keys(self, reply: Message) -> Message:
        """Return the answer to the setup with a signature of its public keys."""
        answer = reply.content.config_records[SECAGG_CONFIGS]
        public = [
            cast(bytes, answer[name]) for name in (SecAggKey.PUBLIC_KEY_1, SecAggKey.PUBLIC_KEY_2)
        ]
        me = self._signer
        return me.signed(reply, keys_text(me.run, me.node, me.client, public))

    def check_keys(self, public: Mapping[int, Sequence[bytes]]) -> None:
        """Refuse public keys that are not signed by different clients of the federation."""
        me, claims = self._signer, read_claims(self._message)
        clients = {node: claims[node].client for node in public if node in claims}
        # Why (decision 8): a node without `peer-keys` demands nothing, so that a federation can
        # introduce signatures node by node.
        for node, pair in public.items() if me.peers else ():
            text = keys_text(me.run, node, clients.get(node, -1), pair)
            if not me.accepts(claims.get(node), text):
                raise refusal("public keys signed by their clients", "others")
        # Different clients, or a server could fill the sum with keys of one that colludes with it.
        if me.peers and (len(set(clients.values())) < len(public) or clients[me.node] != me.client):
            raise refusal("the keys of as many clients as nodes", "a client more than once")
        # Shares and threshold of the setup, as stored by Flower's mod: a later request could name
        # others.
        flower: Any = self._state[SECAGG_STATE]
        # Why (decision 8): the keys of every sum are new, so that a signature is valid in it alone.
        rows = [[node, clients.get(node, -1), *public[node]] for node in sorted(public)]
        agreed = {"shares": flower[STATE_SHARES], "threshold": flower[STATE_THRESHOLD]}
        this_sum = digest("sum", **agreed, keys=rows)
        known = clients if me.peers else {}  # without the others' keys anyone may have claimed it
        self._state[_STATE] = ConfigRecord(
            {_SUM: this_sum, _NODES: list(known), _CLIENTS: list(known.values())}
        )

    def sign_survivors(self, alive: Sequence[int], dead: Sequence[int]) -> Message:
        """Return a signature of who is in the sum; a client gives one per sum."""
        signed, text = self._signed, self._survivors(alive, dead)
        # Why (decision 8): with a second set, the server could unmask different sums with the
        # signatures of different clients.
        if signed.get(_SURVIVORS, text) != text:
            raise refusal("one set of survivors per sum", "a second one")
        signed[_SURVIVORS] = text
        reply = Message(RecordDict(), reply_to=self._message)
        return self._signer.signed(reply, text)

    def check_survivors(self, alive: Sequence[int], dead: Sequence[int]) -> None:
        """Refuse to unmask another set than this client and enough others signed."""
        me, signed = self._signer, self._signed
        if not me.peers:
            return
        text = self._survivors(alive, dead)
        if signed.get(_SURVIVORS) != text:
            raise refusal("the survivors that this client signed", "others")
        clients = dict(zip(signed[_NODES], signed[_CLIENTS], strict=True))
        # This client's own signature counts: it signed in the stage before.
        agreed = {me.node} | {
            node
            for node, claim in read_claims(self._message).items()
            # Only the client that signed this node's keys.
            if node in alive and claim.client == clients.get(node) and me.accepts(claim, text)
        }
        # As many as are needed to unmask: fewer could have signed a set that others do not know.
        threshold: Any = self._state[SECAGG_STATE][STATE_THRESHOLD]
        if len(agreed) < threshold:
            raise refusal(f"{threshold} clients that signed the same survivors", f"{len(agreed)}")

    @property
    def _signed(self) -> Any:
        if _STATE not in self._state:
            raise refusal("the stages in their order", f"{keys.SURVIVORS!r} before the keys")
        return self._state[_STATE]

    def _survivors(self, alive: Sequence[int], dead: Sequence[int]) -> bytes:
        facts = {"run": self._signer.run, "sum": str(self._signed[_SUM])}
        # Sorted, as clients sign the set, whatever the order of the server's list.
        return statement("survivors", **facts, alive=sorted(alive), dead=sorted(dead))
