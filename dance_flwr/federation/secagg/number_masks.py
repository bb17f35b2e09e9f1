"""Mask the numbers beside an update, which are read over one set of clients or not at all.

A weight, a count of nodes or a histogram of labels is the same in every round. Two sums of them
over sets that differ in one client give that client's own. So they have masks of their own beside
those of SecAgg+: every two clients of the sum share one, and nobody holds shares of it. They cancel
where all these clients are in the sum and were asked the same; where one drops out, what is left is
uniform, and only the sum of updates can be read. A client adds its numbers to sums over the set of
its first sum alone, and uniform integers to all others.
"""

import json
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
from dance_flwr.federation.secagg.request import options_of
from dance_flwr.federation.secagg.signing import clients_of, ledger_folder
from dance_flwr.federation.secagg.vectors import MetricLayout
from dance_flwr.federation.wire import keys

PARTNERS = "sum-partners.json"
_STATE, _FIRST = "dance-flwr-partners", "first"
_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds
# Fields of Flower's stored state: this node, the others, and the secret shared with each, whose
# private half no shares exist of.
_NODE, _OTHERS, _SECRETS = "nid", "ss2_dict:K", "ss2_dict:V"


def hide_numbers(message: Message, reply: Message, context: Context, request: str) -> None:
    """Mask the numbers in the answer to the collect stage; the layout says if they are missing.

    Parameters
    ----------
    reply : Flower's, with integers of eight bytes; altered in place
    request : the `request_digest`
    """
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
    layout[keys.OMITTED] = not _is_first_set([*others, node], context)
    # Why: the difference of two sums over different clients would be one client's numbers.
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


def _is_first_set(nodes: list[int], context: Context) -> bool:
    """Whether a sum is over the clients of the first one; the first is written down.

    Where all clients signed their keys, they are known by number, over all runs of this node.
    Elsewhere they are known by node, in one run of Flower.
    """
    clients = clients_of(nodes, context)
    name, members = ("clients", clients) if clients else (f"run {context.run_id}", sorted(nodes))
    folder = ledger_folder(context.node_config)
    # A simulated client has no folder that outlives the run.
    if folder is None:
        first = context.state.config_records.setdefault(_STATE, ConfigRecord({_FIRST: members}))
        return bool(first[_FIRST] == members)
    # A deployed node answers each message in a process of its own.
    with private_lock(folder / f".{PARTNERS}.lock", timeout=_SECONDS):
        sets = _read(folder / PARTNERS)
        if name not in sets:
            # On the device before the answer leaves: a set lost with the power would let a second
            # one in.
            with atomic_file(folder / PARTNERS, lasting=True) as file:
                file.write((json.dumps(sets | {name: members}, indent=1) + "\n").encode())
        return bool(sets.get(name, members) == members)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{path}: expected the clients of this client's first sum, found a damaged file "
            f"({error}); restore it from a copy, or delete it to begin with another set"
        ) from None
