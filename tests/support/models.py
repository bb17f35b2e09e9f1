"""Models of clients as they travel and as a server keeps them."""

from dance_flwr.federation.wire.tensors import state_of


def models(finished, kind="train", up=True):
    """Return the models in messages of one kind: client -> one state dict per message."""
    by_client = {}
    for message in finished.messages:
        about = message.metadata
        node = about.src_node_id if up else about.dst_node_id
        if node and about.message_type == kind and "arrays" in message.content:
            by_client.setdefault(node - 1, []).append(state_of(message.content["arrays"]))
    return by_client


def equal(left, right):
    """Whether two state dicts are equal bit by bit."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and left[name].equal(right[name]) for name in left
    )
