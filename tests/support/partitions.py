"""Graphs to partition."""

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.data.partition import PartitionSpec

SPEC = PartitionSpec("louvain", 3, 0, 1.0, 0.6, 0.2, 0.2)


def make_graph(n: int, pairs, labels=None, classes: int = 3) -> TextGraph:
    ends = np.array(list(pairs), np.int64).reshape(-1, 2)
    indptr, indices = csr_from_pairs(ends[:, 0], ends[:, 1], n)
    return TextGraph(
        name="toy",
        ids=np.array([f"n{i}" for i in range(n)]),
        texts=["t"] * n,
        labels=np.arange(n, dtype=np.int64) % classes
        if labels is None
        else np.asarray(labels, np.int64),
        class_names=tuple(f"c{k}" for k in range(classes)),
        indptr=indptr,
        indices=indices,
        split=np.zeros(n, np.uint8),
        provenance={"made": "here"},
    )


def cliques(count: int, size: int) -> TextGraph:
    """A ring of cliques: the communities are known."""
    return make_graph(count * size, nx.connected_caveman_graph(count, size).edges)


@st.composite
def graph_and_clients(draw):
    n = draw(st.integers(1, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=80))
    return make_graph(n, pairs), draw(st.integers(1, n))
