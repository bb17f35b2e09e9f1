"""Graphs to partition."""

from dataclasses import replace

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition import PartitionSpec
from support.graphs import text_graph

SPEC = PartitionSpec("louvain", 3, 0, 1.0, 0.6, 0.2, 0.2)


def make_graph(n: int, pairs, labels=None, classes: int = 3) -> TextGraph:
    labels = np.arange(n) % classes if labels is None else labels
    names = tuple(f"c{k}" for k in range(classes))
    ids, pairs = [f"n{i}" for i in range(n)], list(pairs)
    graph = text_graph("toy", ids, ["t"] * n, labels, pairs, names=names)
    return replace(graph, provenance={"made": "here"})


def cliques(count: int, size: int) -> TextGraph:
    """A ring of cliques: the communities are known."""
    return make_graph(count * size, nx.connected_caveman_graph(count, size).edges)


@st.composite
def graph_and_clients(draw):
    n = draw(st.integers(1, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=80))
    return make_graph(n, pairs), draw(st.integers(1, n))
