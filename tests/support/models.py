"""Models of clients as a server keeps them."""

import torch
from dance_flwr.federation.server.personal import model_for

from dance_flwr.federation.wire.messages import arrays_of, state_of


def models(finished, kind="train", up=True):
    """client -> round -> the model in that message."""
    found = {}
    for message in finished.messages:
        node = message.metadata.src_node_id if up else message.metadata.dst_node_id
        if (
            not node
            or message.metadata.message_type != kind
            or message.content.get("arrays") is None
        ):
            continue
        found.setdefault(node - 1, []).append(state_of(message.content["arrays"]))
    return found


def equal(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def own_part(state, client):
    return state_of(model_for(arrays_of(state), client))
