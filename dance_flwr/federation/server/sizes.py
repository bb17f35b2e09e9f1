"""Sizes of the clients of a run, collected over all starts: some may be absent at one of them."""

from collections.abc import Mapping

from dance_flwr.federation.wire.messages import Schema

Sizes = dict[str, dict[int | None, int]]  # name -> client -> count; None = the sum of all


def merged_sizes(past: Sizes, described: Mapping[int, Schema]) -> Sizes:
    """Return nodes and encoded tokens of all clients that described their data, ascending."""
    counted = {
        "nodes_per_client": {client: schema.num_nodes for client, schema in described.items()},
        "encoder_tokens": {client: schema.encoder_tokens for client, schema in described.items()},
    }
    return {
        # An absent client keeps the numbers of an earlier start; all others state them anew.
        name: dict(sorted((past.get(name, {}) | counts).items(), key=lambda item: item[0] or 0))
        for name, counts in counted.items()
    }
