"""A client's graph: neighbourhoods, operators and induced edges."""

import numpy as np
import pytest
import torch
from support.builders import random_csr, rows_of

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph


@pytest.fixture
def graph():
    return LocalGraph(rows_of(random_csr(np.random.default_rng(4), 20, 0.2)), torch.ones(20).bool())


@pytest.mark.parametrize("core", [[], [4], [11, 3, 7, 2, 19]])
def test_induced_edges_keep_the_order_of_the_nodes(graph, core):
    rows, cols, weights = graph.induced_edges(torch.tensor(core, dtype=torch.int64))
    every = set(zip(*(part.tolist() for part in graph.edges()), strict=True))
    wanted = {(i, j) for i, u in enumerate(core) for j, v in enumerate(core) if (u, v) in every}
    assert set(zip(rows.tolist(), cols.tolist(), strict=True)) == wanted
    assert weights.tolist() == [1.0] * len(wanted) and rows.numel() == len(wanted)


def test_the_training_graph_lacks_hidden_nodes_and_has_a_name_of_its_own(dance):
    data = ClientData(dance.partition / "client-0", torch.device("cpu"), inductive=True)
    assert (data.graph.name, data.training_graph.name) == ("whole", "training")
    visible = data.training_graph.visible
    rows, cols = data.training_graph.edges()
    assert bool(visible[rows].all()) and bool(visible[cols].all()) and not bool(visible.all())
    every = set(zip(*(part.tolist() for part in data.graph.edges()), strict=True))
    kept = {(a, b) for a, b in every if visible[a] and visible[b]}
    assert set(zip(rows.tolist(), cols.tolist(), strict=True)) == kept
