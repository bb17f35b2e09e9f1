"""Masks between two clients, from all bits of their secret: of SecAgg+, and of numbers beside it.

Flower 1.42 folds the shared secret of two clients to 32 bits and seeds NumPy's Mersenne Twister
with them: a server can try all 2^32 seeds and remove the mask (flwrlabs/flower, issue 7522). Here
the secret is the key of ChaCha20 from `cryptography`. Flower derives the secret of two clients from
their keys alone; here the derivation also has a context. Flower's client and server modules each
hold both functions under their names; `install` replaces them.

The numbers beside an update (a weight, a count of nodes, a histogram of labels) are the same in
every round. Two sums of them over sets that differ in one client give that client's own. So they
have additional masks (`hide_numbers`): every two clients of the sum share one, without shares of it
elsewhere. These cancel if all these clients are in the sum and got the same request; if one drops
out, the rest is uniform, and only the sum of updates can be read. A client adds its numbers to sums
over one set of clients only, and uniform integers to all others.

That set is the clients of the node's `peer-keys`, even if some are absent from the first sum;
without peer keys it is that of the first sum that this client helped to unmask. It is written down
before the shares leave, and no other set is served later, even with other peer keys. For each sum
that a server reads, at least as many clients as its threshold have bound this set, and are in no
later sum over another one. So any combination of such sums is over at least as many clients.
"""

import base64
import hashlib
import inspect
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ConfigRecord, Context, Message
from numpy.typing import NDArray

from dance_flwr.disk import ledger
from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    SECAGG_STATE,
    STATE_NODE,
    STATE_OTHERS,
    STATE_SECRETS,
    SecAggKey,
    bytes_to_ndarray,
    ndarray_to_bytes,
)
from dance_flwr.federation.secagg.signatures import clients_of, ledger_folder, signer_of
from dance_flwr.federation.secagg.sums import MetricLayout, options_of, refusal
from dance_flwr.federation.wire import keys

LOG = logging.getLogger("flwr")
# One label per use of a secret, so that no two uses have the same output.
_LABEL = b"dance-flwr secure aggregation mask"
_SHARED_LABEL = b"dance-flwr secure aggregation key"
# sha256 of the source of each function that `install` may replace; read a new source first.
KNOWN_SHA256 = {
    "pseudo_rand_gen": "19ee2545ed58c0174c0b1a56f4211d635347156163ae76a711613badad4b25e9",
    "generate_shared_key": "5ee640972ced1faa1d7ac8c607eb96afd4e4268a1cb184d51a5d632206686118",
}
# Uses of a secret. That of masks depends on the request, that of shares does not, as clients
# exchange shares before they know the request.
MASKS, SHARES = "masks", "shares"
_CONTEXT: ContextVar[bytes] = ContextVar("derivation")
PARTNERS = "sum-partners.json"
_BOUND, _COLLECTED = "dance-flwr-bound", "dance-flwr-collected"  # name of a set -> its members


@contextmanager
def derivation(run: int, purpose: str, request: str = "") -> Iterator[None]:
    """Derive the secrets of two clients for this run and purpose within the block.

    Parameters
    ----------
    request : the `request_digest` of the sum, for masks
    """
    token = _CONTEXT.set(f"{purpose}|{run}|{request}".encode())
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def shared_key(private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> bytes:
    """Return the secret of two clients: ECDH, then HKDF-SHA256 (RFC 5869) with a context as `info`.

    Parameters
    ----------
    private, public : the key of one client and that of the other

    Returns
    -------
    44 bytes, base64 of 32: the form that Flower's encryption of shares takes

    Raises
    ------
    LookupError : outside `derivation`, where there is no context
    """
    # Both public keys are part of the context, in the same order on both sides, so that a secret is
    # bound to the pair and not only to the common point.
    pair = sorted(
        key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        for key in (private.public_key(), public)
    )
    info = b"|".join([_SHARED_LABEL, _CONTEXT.get(), *pair])
    derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive
    return base64.urlsafe_b64encode(derive(private.exchange(ec.ECDH(), public)))


def stream(secret: bytes, length: int) -> bytes:
    """Return `length` bytes of the ChaCha20 key stream under sha256(label || secret).

    RFC 8439, block counter 0, nonce 0. The nonce is constant, as a secret is used for one mask
    only: clients draw new keys and seeds in every round.
    """
    cipher = Cipher(ChaCha20(hashlib.sha256(_LABEL + secret).digest(), bytes(16)), mode=None)
    return cipher.encryptor().update(bytes(length))


def masks(
    secret: bytes, modulus: int, shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.int64]]:
    """Return one array of uniform integers in [0, modulus) per shape.

    The signature is that of Flower's generator.

    Parameters
    ----------
    secret : any number of bytes; all of them count
    modulus : a power of two, at most 2^32

    Raises
    ------
    ValueError : any other modulus, for which the integers would not be uniform
    """
    if modulus < 2 or modulus & (modulus - 1) or modulus > 2**32:
        raise ValueError(f"expected a power of two from 2 to 2^32 as modulus, found {modulus}")
    sizes = [prod(shape) for shape in shapes]
    # The lowest bits of a uniform word are uniform, as the modulus is a power of two.
    words = np.frombuffer(stream(secret, 4 * sum(sizes)), "<u4") & np.uint32(modulus - 1)
    parts = np.split(words.astype(np.int64), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def install() -> None:
    """Make Flower's SecAgg+ use our functions, at client and server; further calls do nothing."""
    for theirs, ours in (
        (flower.pseudo_rand_gen, masks),
        (flower.generate_shared_key, shared_key),
    ):
        name, digest = theirs.__name__, _source_sha256(theirs)
        if digest != KNOWN_SHA256[name]:
            raise UserError(
                f"privacy.secure-aggregation: expected Flower's {name} with sha256 "
                f"{KNOWN_SHA256[name][:12]}, found {digest[:12]}; use flwr>=1.42,<1.43, or read "
                "the new one and update dance_flwr/federation/secagg/masks.py"
            )
        for path in flower.MASK_USERS:
            module = import_module(path)
            if not hasattr(module, name):
                raise UserError(
                    f"privacy.secure-aggregation: expected {name} in {path}, found none; "
                    "use flwr>=1.42,<1.43"
                )
            setattr(module, name, ours)


@lru_cache(maxsize=4)  # `install` runs with every message of the protocol
def _source_sha256(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()


def hide_numbers(message: Message, reply: Message, context: Context, request: str) -> None:
    """Mask the numbers in an answer to the collect stage; the layout says if they are missing."""
    state: Any = context.state.config_records[SECAGG_STATE]
    sources: Any = message.content.config_records[SECAGG_CONFIGS][SecAggKey.SOURCE_LIST]
    layout: Any = reply.content.config_records[keys.SECURE_LAYOUT]
    answer: Any = reply.content.config_records[SECAGG_CONFIGS]
    options, others = options_of(message), set(sources)
    assert options is not None  # Flower has masked the vector of this sum
    form = options.form
    count = MetricLayout.of_record(layout).size * form.digits
    modulus, node, label = 2**form.bits, int(state[STATE_NODE]), b"numbers|%s|" % request.encode()
    *parts, vector = (bytes_to_ndarray(part) for part in answer[SecAggKey.MASKED_PARAMETERS])
    vector = vector.astype(np.int64)
    numbers = vector[len(vector) - count :]
    collected = _set_of([*others, node], message, context)
    # Nothing is bound before the sum is unmasked, as nothing of it can be read.
    context.state.config_records[_COLLECTED] = ConfigRecord(collected)
    # Why: the difference of two sums over different clients would be one client's numbers.
    layout[keys.OMITTED] = not collected
    if layout[keys.OMITTED]:
        # Uniform, and so is the sum of all clients' numbers.
        numbers[:] = masks(secrets.token_bytes(32), modulus, [(count,)])[0]
    else:
        for other, secret in zip(state[STATE_OTHERS], state[STATE_SECRETS], strict=True):
            if other in others:
                pad = masks(label + secret, modulus, [(count,)])[0]
                # Opposite signs, so that the pads of a pair cancel in the sum.
                numbers += pad if node > other else -pad
        numbers %= modulus
    answer[SecAggKey.MASKED_PARAMETERS] = [ndarray_to_bytes(part) for part in (*parts, vector)]


def bind_set(context: Context) -> None:
    """Bind this client's numbers to the clients of the sum that it is about to unmask.

    The server's list of survivors is ignored, as without signatures each client could be told
    another one.
    """
    for name, members in context.state.config_records.pop(_COLLECTED, {}).items():
        if _bound(name, context, bind=members) != members:
            raise refusal("the clients whose numbers were unmasked before", "others")


def _set_of(nodes: list[int], message: Message, context: Context) -> dict[str, Any]:
    """Return {name: members} if the sum over these nodes may hold this client's numbers, else {}.

    Clients that all signed their keys are known by number, over all runs of this node; otherwise by
    node, in one run of Flower.
    """
    if peers := signer_of(message, context).peers:
        name, members, expected = "clients", clients_of(nodes, context), sorted(peers)
    else:
        name, members = f"run {context.run_id}", sorted(nodes)
        expected = members
    bound = _bound(name, context)
    if members == expected == (bound or expected):
        return {name: members}
    # Only in the node's own log: the server learns that numbers are missing, not why.
    before = f", and {bound} after a sum that was unmasked" if bound else ""
    LOG.warning(
        "%s: expected %s%s in a sum, found %s: this client's numbers are left out of it",
        *(keys.PEER_KEYS if peers else name, expected, before, members),
    )
    return {}


def _bound(name: str, context: Context, bind: Any = None) -> Any:
    """Return the members of the bound set of this name, after binding `bind` if there is none."""
    folder = ledger_folder(context.node_config)
    if folder is None:
        known = context.state.config_records.setdefault(_BOUND, ConfigRecord())
        return known.setdefault(name, bind) if bind else known.get(name)
    expected = "the clients of the sums that hold this client's numbers; restore it from a copy"
    with ledger(folder / PARTNERS, {}, dict, expected) as sets:
        # On the device before the answer leaves: a set that is lost would let a second one in.
        return sets.setdefault(name, bind) if bind else sets.get(name)
