"""Models of clients as they travel and as a server keeps them."""

import torch

from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.methods.server_side import entries_of


def models(finished, kind="train", up=True):
    """Return the models in messages of one kind: client -> one state dict per message."""
    by_client = {}
    for message in finished.messages:
        node = message.metadata.src_node_id if up else message.metadata.dst_node_id
        if (
            not node
            or message.metadata.message_type != kind
            or message.content.get("arrays") is None
        ):
            continue
        by_client.setdefault(node - 1, []).append(state_of(message.content["arrays"]))
    return by_client


def equal(left, right):
    """Whether two state dicts are equal bit by bit."""
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def client_part(state, client):
    """Return the part of a personalised model that belongs to one client."""
    return entries_of(state, client)
