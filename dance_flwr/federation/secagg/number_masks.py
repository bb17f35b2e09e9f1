"""Mask the numbers beside an update, which are read over one set of clients or not at all.

A weight, a count of nodes or a histogram of labels is the same in every round. Two sums of them
over sets that differ in one client give that client's own. So they have masks of their own beside
those of SecAgg+: every two clients of the sum share one, and nobody holds shares of it. They cancel
where all these clients are in the sum and were asked the same; where one drops out, what is left is
uniform, and only the sum of updates can be read. A client adds its numbers to sums over one set
alone, and uniform integers to all others.

That set is the clients of the node's `peer-keys`, whoever is absent from the first sum; elsewhere
it is that of the first sum that this client helped to unmask. It is written down before the shares
leave, and no other set is served after it, whatever the peer keys say then. At each sum that a
server reads, as many clients as its threshold bind its set, or have done so: they are in no later
sum over another one. So any combination of such sums is over as many clients at least.
"""

import json
import logging
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from dance_flwr.disk import atomic_file, private_lock
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    SECAGG_STATE,
    SecAggKey,
    bytes_to_ndarray,
    ndarray_to_bytes,
)
from dance_flwr.federation.secagg.masks import masks
from dance_flwr.federation.secagg.request import options_of, refusal
from dance_flwr.federation.secagg.signing import clients_of, ledger_folder, signer_of
from dance_flwr.federation.secagg.vectors import MetricLayout
from dance_flwr.federation.wire import keys

PARTNERS = "sum-partners.json"
LOG = logging.getLogger("flwr")
_BOUND, _COLLECTED = "dance-flwr-bound", "dance-flwr-collected"  # name of a set -> its members
_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds
# Fields of Flower's stored state: this node, the others, and the secret shared with each, whose
# private half no shares exist of.
_NODE, _OTHERS, _SECRETS = "nid", "ss2_dict:K", "ss2_dict:V"


def hide_numbers(message: Message, reply: Message, context: Context, request: str) -> None:
    """Mask the numbers in the answer to the collect stage; the layout says if they are missing."""
    state: Any = context.state.config_records[SECAGG_STATE]
    sources: Any = message.content.config_records[SECAGG_CONFIGS][SecAggKey.SOURCE_LIST]
    layout: Any = reply.content.config_records[keys.SECURE_LAYOUT]
    answer: Any = reply.content.config_records[SECAGG_CONFIGS]
    options, others = options_of(message), set(sources)
    assert options is not None  # Flower has masked the vector of this sum
    form = options.form
    count = MetricLayout.of_record(layout).size * form.digits
    modulus, node, label = 2**form.bits, int(state[_NODE]), b"numbers|%s|" % request.encode()
    *parts, vector = (bytes_to_ndarray(part) for part in answer[SecAggKey.MASKED_PARAMETERS])
    vector = vector.astype(np.int64)
    numbers = vector[len(vector) - count :]
    collected = _set_of([*others, node], message, context)
    # Until the sum is unmasked nothing of it was read, and nothing is bound.
    context.state.config_records[_COLLECTED] = ConfigRecord(collected)
    # Why: the difference of two sums over different clients would be one client's numbers.
    layout[keys.OMITTED] = not collected
    if layout[keys.OMITTED]:
        # Uniform, so that the sum of all clients' numbers is uniform too and tells nothing.
        numbers[:] = masks(secrets.token_bytes(32), modulus, [(count,)])[0]
    else:
        for other, secret in zip(state[_OTHERS], state[_SECRETS], strict=True):
            if other in others:
                pad = masks(label + secret, modulus, [(count,)])[0]
                # Opposite signs at the two ends, so that the pads of a pair cancel in the sum.
                numbers += pad if node > other else -pad
        numbers %= modulus
    answer[SecAggKey.MASKED_PARAMETERS] = [ndarray_to_bytes(part) for part in (*parts, vector)]


def bind_set(context: Context) -> None:
    """Bind this client's numbers to the set of the sum that it is about to unmask.

    The file is on the device when this returns. Whom the server calls a survivor does not matter:
    without signatures it could tell each client something else.
    """
    for name, members in context.state.config_records.pop(_COLLECTED, {}).items():
        if _bound(name, context, bind=members) != members:
            raise refusal("the clients whose numbers were unmasked before", "others")


def _set_of(nodes: list[int], message: Message, context: Context) -> dict[str, Any]:
    """Return {name: members} of a set whose sum may hold this client's numbers, or nothing.

    Where all clients signed their keys, they are known by number, over all runs of this node.
    Elsewhere they are known by node, in one run of Flower.
    """
    if peers := signer_of(message, context).peers:
        name, members, expected = "clients", clients_of(nodes, context), sorted(peers)
    else:
        name, members = f"run {context.run_id}", sorted(nodes)
        expected = members
    bound = _bound(name, context)
    if members == expected == (bound or expected):
        return {name: members}
    # In the node's own log alone: the server learns that numbers are missing, not why.
    before = f", and {bound} after a sum that was unmasked" if bound else ""
    LOG.warning(
        "%s: expected %s%s in a sum, found %s: this client's numbers are left out of it",
        *(keys.PEER_KEYS if peers else name, expected, before, members),
    )
    return {}


def _bound(name: str, context: Context, bind: Any = None) -> Any:
    """Return the members of the bound set of this name, after binding `bind` if there is none."""
    folder = ledger_folder(context.node_config)
    # A simulated client has no folder that outlives the run.
    if folder is None:
        known = context.state.config_records.setdefault(_BOUND, ConfigRecord())
        return known.setdefault(name, bind) if bind else known.get(name)
    # A deployed node answers each message in a process of its own.
    with private_lock(folder / f".{PARTNERS}.lock", timeout=_SECONDS):
        sets = _read(folder / PARTNERS)
        if bind and name not in sets:
            sets[name] = bind
            # On the device before the answer leaves: a set lost with the power would let a second
            # one in.
            with atomic_file(folder / PARTNERS, lasting=True) as file:
                file.write((json.dumps(sets, indent=1) + "\n").encode())
        return sets.get(name)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path}: expected the clients of the sums that hold this client's numbers, found a "
            f"damaged file ({error}); restore it from a copy"
        ) from None
