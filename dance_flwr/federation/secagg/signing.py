"""Sign the stages of a sum at a client, and check the signatures of the others.

Two rounds of Bonawitz et al. 2017, "Practical Secure Aggregation", against a server that deviates:
public keys are signed, so that the server can neither replace them nor invent clients, and clients
sign who is in the sum before they unmask it, so that all of them unmask the same one. The keys are
in the node's configuration: `signing-key` is its own, `peer-keys` those of all clients. A node
without `peer-keys` demands nothing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flwr.app import ConfigRecord, Context, Message, RecordDict

from dance_flwr.config.paths import state_root
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS, SECAGG_STATE, SecAggKey
from dance_flwr.federation.node_config import client_number
from dance_flwr.federation.secagg import signatures
from dance_flwr.federation.secagg.request import refusal
from dance_flwr.federation.secagg.signatures import Claim, PrivateKey, PublicKey
from dance_flwr.federation.secagg.stage_checks import SHARES, THRESHOLD
from dance_flwr.federation.wire import keys

_FILES = (keys.SIGNING_KEY, keys.PEER_KEYS)
_STATE = "dance-flwr-signed"  # what this client signed in the sum that is going on
_SUM, _NODES, _CLIENTS, _SURVIVORS = "sum", "nodes", "clients", "survivors"


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
        """Return a reply with this node's signature of a text, where it has a key."""
        if self.key is None:
            return reply
        return signatures.with_claim(reply, Claim(self.client, signatures.sign(self.key, text)))

    def accepts(self, claim: Claim | None, text: bytes) -> bool:
        """Whether a claim is that of a client whose key is known."""
        key = self.peers.get(claim.client) if claim else None
        return bool(claim and key and signatures.is_signed(text, claim.signature, key))


def signer_of(message: Message, context: Context) -> Signer:
    """Read a node's keys from the files that its configuration names."""
    private, all_keys = (context.node_config.get(name, "") for name in _FILES)
    client = client_number(context.node_config)
    key = signatures.load_key(Path(str(private))) if private else None
    peers = signatures.read_peer_keys(Path(str(all_keys))) if all_keys else {}
    # A node that demands signatures gives its own, or its own keys would fail its check in each
    # sum.
    if peers and (key is None or peers.get(client) != key.public_key()):
        raise UserError(
            f"{keys.PEER_KEYS}: expected the public half of {keys.SIGNING_KEY} for client "
            f"{client} in {all_keys}, found another or none; correct --node-config, or collect "
            "the keys again with `dance-flwr deploy peer-keys`"
        )
    return Signer(context.run_id, message.metadata.dst_node_id, client, key, peers)


def ledger_folder(node_config: Mapping[str, Any]) -> Path | None:
    """Return the folder of what a node has spent, counted and joined; None for a simulated client.

    It is that of the node's signing key, else of the path of its data: a client's folder that is
    prepared again is that of the same client, and its ledgers are not in it.
    """
    path = node_config.get(keys.DATA_PATH)
    # A simulated client is made anew with its partition: its ledgers are in its folder, per run.
    if not path:
        return None
    if key := node_config.get(keys.SIGNING_KEY):
        name = signatures.fingerprint_of(
            signatures.load_key(Path(str(key))).public_key()
        ).removeprefix("SHA256:")
    else:
        name = str(Path(str(path)).resolve())
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return state_root() / "nodes" / f"{'key' if key else 'path'}-{digest}"


def signed_hello(message: Message, context: Context, reply: Message) -> Message:
    """Return an answer to HELLO with the node's signature, where it has a key."""
    signer = signer_of(message, context)
    return signer.signed(reply, signatures.hello_text(signer.run, signer.node, signer.client))


def clients_of(nodes: Sequence[int], context: Context) -> list[int]:
    """Return the clients of these nodes, ascending; empty unless all signed keys of this sum."""
    signed: Any = context.state.config_records.get(_STATE, {})
    known = dict(zip(signed.get(_NODES, []), signed.get(_CLIENTS, []), strict=True))
    # With one unsigned client among them, a set is known by its nodes alone.
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
        return me.signed(reply, signatures.keys_text(me.run, me.node, me.client, public))

    def check_keys(self, public: Mapping[int, Sequence[bytes]]) -> None:
        """Refuse public keys that are not signed by different clients of the federation."""
        me, claims = self._signer, signatures.read_claims(self._message)
        clients = {node: claims[node].client for node in public if node in claims}
        # Why (decision 8): a node without `peer-keys` demands nothing, so that a federation can be
        # changed node by node.
        for node, pair in public.items() if me.peers else ():
            text = signatures.keys_text(me.run, node, clients.get(node, -1), pair)
            if not me.accepts(claims.get(node), text):
                raise refusal("public keys signed by their clients", "others")
        # Different clients: else a server could fill the sum with keys of one that colludes with
        # it.
        if me.peers and (len(set(clients.values())) < len(public) or clients[me.node] != me.client):
            raise refusal("the keys of as many clients as nodes", "a client more than once")
        # Shares and threshold as in the setup, which Flower's mod has stored: a later request could
        # name others.
        flower: Any = self._state[SECAGG_STATE]
        digest = signatures.sum_digest(flower[SHARES], flower[THRESHOLD], public, clients)
        known = clients if me.peers else {}  # without the others' keys anyone may have claimed it
        self._state[_STATE] = ConfigRecord(
            {_SUM: digest, _NODES: list(known), _CLIENTS: list(known.values())}
        )

    def sign_survivors(self, alive: Sequence[int], dead: Sequence[int]) -> Message:
        """Return a signature of who is in the sum; a client gives one per sum."""
        signed, text = self._signed, self._survivors(alive, dead)
        # Why (decision 8): a second set would let the server unmask different sums with the
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
            for node, claim in signatures.read_claims(self._message).items()
            # The client that signed this node's keys, and no other one of the federation.
            if node in alive and claim.client == clients.get(node) and me.accepts(claim, text)
        }
        # As many as are needed to unmask: fewer signatures could belong to a set that others do not
        # know.
        threshold: Any = self._state[SECAGG_STATE][THRESHOLD]
        if len(agreed) < threshold:
            raise refusal(f"{threshold} clients that signed the same survivors", f"{len(agreed)}")

    @property
    def _signed(self) -> Any:
        if _STATE not in self._state:
            raise refusal("the stages in their order", f"{keys.SURVIVORS!r} before the keys")
        return self._state[_STATE]

    def _survivors(self, alive: Sequence[int], dead: Sequence[int]) -> bytes:
        return signatures.survivors_text(self._signer.run, str(self._signed[_SUM]), alive, dead)
