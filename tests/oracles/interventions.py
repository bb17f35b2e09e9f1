"""Re-prediction the slow way: write the changed bank down node by node and predict the whole client
again.
"""

from types import SimpleNamespace

import torch

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.inference import predict


def ball(site, node, radius):
    """Nodes within `radius` hops, one breadth-first step at a time."""
    seen = {node}
    for _ in range(radius):
        seen |= {int(v) for u in seen for v in site.graph.hops().one(torch.tensor([u])).index}
    return seen


def pool(site, node):
    """Chunks of the nodes within two hops."""
    return {
        int(c)
        for u in ball(site, node, 2)
        for c in site.table.chunks_of.take(torch.tensor([u])).index
    }


def with_chunks(site, left):
    """The same client with a bank of these chunks only."""
    rows = [
        [int(c) for c in site.table.chunks_of.take(torch.tensor([u])).index if int(c) in left]
        for u in range(site.num_nodes)
    ]
    chunks = site.table.chunks[torch.tensor([c for row in rows for c in row], dtype=torch.int64)]
    ptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    table = TextTable.from_chunks(chunks, ptr)
    changed = {"table": table, "graph": site.graph, "label_table": site.label_table}
    return SimpleNamespace(num_nodes=site.num_nodes, device=site.device, **changed)


def repredict(model, site, settings, node, kept, texts_elsewhere):
    """p(y | node) with `kept` of its pool, [C]."""
    elsewhere = (
        set(range(site.table.chunks.size(0))) - pool(site, node) if texts_elsewhere else set()
    )
    return predict(model, with_chunks(site, elsewhere | set(kept)), settings)["deployed"][node]
