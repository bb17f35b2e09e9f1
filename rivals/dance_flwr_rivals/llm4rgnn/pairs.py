"""Pairs of nodes of a client: edges, least similar pairs and nearest nodes, in blocks."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.nn.hops import contains
from dance_flwr.nn.ragged import Ragged, ptr_of_rows

_BLOCK_ENTRIES = 2**23  # similarities in memory at a time


def undirected_edges(graph: LocalGraph) -> Tensor:
    """Return every edge once, [m, 2] int64, u < v, ascending."""
    rows, cols = graph.edges()
    once = rows < cols
    return torch.stack([rows[once], cols[once]], dim=1)


def rows_of_pairs(pairs: Tensor, num_nodes: int) -> Ragged:
    """Return the neighbours of every node, ascending, each once; [m, 2] int64 -> n rows."""
    both = torch.cat([pairs, pairs.flip(1)])
    codes = torch.unique(both[:, 0] * num_nodes + both[:, 1])
    return Ragged(ptr_of_rows(codes // num_nodes, num_nodes), codes % num_nodes)


def cosines(features: Tensor, pairs: Tensor) -> Tensor:
    """Return cos(t_u, t_v), 0 where a text is empty; [n, d], [m, 2] int64 -> [m] float32."""
    unit = F.normalize(features, dim=1)
    parts = [(unit[part[:, 0]] * unit[part[:, 1]]).sum(1) for part in torch.split(pairs, 65_536)]
    return torch.cat(parts)


def least_similar_pairs(features: Tensor, graph: LocalGraph, limit: int) -> Tensor:
    """Return the visible pairs u < v without an edge that have the lowest cosines; [k, 2] int64.

    At most `limit`, least similar first, ties to the lower node numbers. O(n^2 d) operations in
    blocks of rows.
    """
    size = len(features)
    pairs, values = features.new_zeros(0, dtype=torch.int64), features.new_zeros(0)
    for rows, block in _similarities(features, graph):
        # Each pair once.
        block[torch.arange(size, device=rows.device) <= rows[:, None]] = -torch.inf
        flat = torch.where(block.isneginf(), torch.inf, block).flatten()
        low = torch.topk(flat, min(limit, len(flat)), largest=False)
        codes = rows[low.indices // size] * size + low.indices % size
        values, pairs = torch.cat([values, low.values]), torch.cat([pairs, codes])
        # Two stable sorts: by the lowest cosine, ties to the lower nodes, whatever the size of a
        # block.
        order = torch.sort(pairs, stable=True).indices
        order = order[torch.sort(values[order], stable=True).indices][:limit]
        values, pairs = values[order], pairs[order]
    pairs = pairs[values < torch.inf]
    return torch.stack([pairs // size, pairs % size], dim=1)


def nearest_nodes(features: Tensor, graph: LocalGraph, limit: int) -> Tensor:
    """Return the most similar visible nodes without an edge to each; [n, k] int64, -1 padded.

    k = min(limit, n), in descending order of the cosine. Invisible nodes have none.
    """
    width, near = min(limit, len(features)), []
    for _, block in _similarities(features, graph):
        top = torch.topk(block, width, dim=1)
        near.append(torch.where(top.values.isneginf(), -1, top.indices))
    return torch.cat(near)


def random_pairs(graph: LocalGraph, count: int, draws: torch.Generator) -> Tensor:
    """Return at most `count` random visible pairs without an edge; [m, 2] int64, with repetition.

    Draws that are an edge, or the same node twice, are left out.
    """
    visible = torch.nonzero(graph.visible).flatten()
    if len(visible) < 2:
        return visible.new_zeros(0, 2)
    # Drawn and then filtered: a sparse graph loses few of the draws.
    places = torch.randint(len(visible), (count, 2), generator=draws).to(visible.device)
    first, second = visible[places[:, 0]], visible[places[:, 1]]
    apart = (first != second) & ~contains(graph.rows, first, second)
    return torch.stack([first[apart], second[apart]], dim=1)


def _similarities(features: Tensor, graph: LocalGraph) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of rows, [b] int64, and their cosines with all nodes, [b, n].

    -inf at the node itself, at its neighbours, and in rows and columns of invisible nodes.
    """
    unit, size = F.normalize(features, dim=1), len(features)
    every = torch.arange(size, device=features.device)
    for rows in torch.split(every, max(1, _BLOCK_ENTRIES // max(size, 1))):
        block = unit[rows] @ unit.T
        # What cannot be linked is infinitely unlike.
        block[rows - rows[0], rows] = -torch.inf
        near = graph.rows.take(rows)
        block[near.rows(), near.index] = -torch.inf
        block[:, ~graph.visible] = -torch.inf
        block[~graph.visible[rows]] = -torch.inf
        yield rows, block
