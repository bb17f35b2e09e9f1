"""Re-prediction the slow way: write the changed bank down node by node and predict the whole client
again.
"""

from types import SimpleNamespace

import torch

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.inference import predict
from dance_flwr.dance.passes import Reader


def ball(data, node, radius):
    """Nodes within `radius` hops, one breadth-first step at a time."""
    seen = {node}
    for _ in range(radius):
        seen |= {int(v) for u in seen for v in data.graph.hops().one(torch.tensor([u])).index}
    return seen


def pool(data, node):
    """Chunks of the nodes within two hops."""
    return {
        int(c)
        for u in ball(data, node, 2)
        for c in data.table.chunks_of.take(torch.tensor([u])).index
    }


def with_chunks(data, left):
    """The same client with a bank of these chunks only."""
    rows = [
        [int(c) for c in data.table.chunks_of.take(torch.tensor([u])).index if int(c) in left]
        for u in range(data.num_nodes)
    ]
    chunks = data.table.chunks[torch.tensor([c for row in rows for c in row], dtype=torch.int64)]
    ptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    table = TextTable.from_chunks(chunks, ptr)
    changed = {"table": table, "graph": data.graph, "label_table": data.label_table}
    return SimpleNamespace(num_nodes=data.num_nodes, device=data.device, **changed)


def repredict(model, data, settings, node, kept):
    """p(y | node) with `kept` of its pool, [C]."""
    elsewhere = set(range(data.table.chunks.size(0))) - pool(data, node)
    changed = with_chunks(data, elsewhere | set(kept))
    return predict(Reader(model, changed, settings, changed.graph))["deployed"][node]
