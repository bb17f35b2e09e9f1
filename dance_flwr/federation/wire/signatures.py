"""What nodes sign, and the record in which signatures travel.

Every statement names the run, so that a signature is worth nothing in another one. Up travels one
client's own signature, down those of all, by node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict

from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.privacy.signatures import digest, statement


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


def survivors_text(run: int, keys: str, alive: Iterable[int], dead: Iterable[int]) -> bytes:
    """Return what a client says before it unmasks: whose vectors are in the sum of these keys.

    Parameters
    ----------
    keys : the `sum_digest`
    alive, dead : the nodes whose vectors are in the sum, and those that left before
    """
    return statement("survivors", run=run, sum=keys, alive=sorted(alive), dead=sorted(dead))


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
    rows = [[node, clients.get(node, -1), *public[node]] for node in sorted(public)]
    return digest("sum", shares=shares, threshold=threshold, keys=rows)


def with_own(message: Message, claim: Claim) -> Message:
    """Return a reply with the client's own signature."""
    record = ConfigRecord({keys.CLIENT: claim.client, keys.SIGNATURE: claim.signature})
    return _with(message, record)


def read_own(reply: Message) -> Claim | None:
    """Return the signature of a reply; None without a whole one."""
    record: Any = reply.content.config_records.get(keys.SIGNED, {}) if reply.has_content() else {}
    client, signature = record.get(keys.CLIENT), record.get(keys.SIGNATURE)
    if type(client) is not int or not isinstance(signature, bytes):
        return None
    return Claim(client, signature)


def with_all(message: Message, claims: Mapping[int, Claim]) -> Message:
    """Return a request with the signatures of all clients, by node."""
    record: dict[str, Any] = {
        keys.SIGNED_NODES: list(claims),
        keys.SIGNED_CLIENTS: [claim.client for claim in claims.values()],
        keys.SIGNATURES: [claim.signature for claim in claims.values()],
    }
    return _with(message, ConfigRecord(record))


def read_all(message: Message) -> dict[int, Claim]:
    """Return node -> signature of a request; empty where there are none."""
    record: Any = message.content.config_records.get(keys.SIGNED, {})
    names = (keys.SIGNED_NODES, keys.SIGNED_CLIENTS, keys.SIGNATURES)
    nodes, clients, signatures = (list(record.get(name, [])) for name in names)
    claims = map(Claim, clients, signatures)
    return dict(zip(nodes, claims, strict=False))


def _with(message: Message, record: ConfigRecord) -> Message:
    return with_content(message, RecordDict(dict(message.content) | {keys.SIGNED: record}))
