"""Weights of edges as gates: hand-computed operators, limits, and their product with agreement."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.builders import ragged
from support.graphs import knowledge_graph

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.edge_weights import EdgeGates
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.data.institution import write_whole

PATH = [[1], [0, 2], [1]]  # 0 - 1 - 2
WEIGHTS = torch.tensor([8.0, 8.0, 2.0, 2.0])  # gates 1 and 1/4


def graph_of(near, weights):
    rows = ragged(near)
    gates = EdgeGates.of(rows, weights)
    visible = torch.ones(len(near), dtype=torch.bool)
    return LocalGraph(rows, visible, gates=gates and gates.at(rows))


def test_an_operator_by_hand():
    """gcn: degrees with the loop of weight 1 are 2, 9/4 and 5/4."""
    graph = graph_of(PATH, WEIGHTS)
    a, b = (1 / 4.5) ** 0.5 * 1, 0.25 * (1 / (2.25 * 1.25)) ** 0.5
    expected = torch.tensor([[1 / 2, a, 0], [a, 1 / 2.25, b], [0, b, 1 / 1.25]])
    torch.testing.assert_close(graph.operator("gcn").to_dense(), expected)
    mean = torch.tensor([[0, 1, 0], [0.8, 0, 0.2], [0, 1, 0]])
    torch.testing.assert_close(graph.operator("mean").to_dense(), mean)
    total = torch.tensor([[0, 1, 0], [1, 0, 0.25], [0, 0.25, 0]])
    torch.testing.assert_close(graph.operator("sum").to_dense(), total)
    ball = graph.around("gcn", torch.tensor([1]), 1)
    (step,) = ball.operators
    torch.testing.assert_close(step.to_dense()[0], expected[1][ball.nodes])


@pytest.mark.parametrize("kind", ["gcn", "mean", "sum"])
def test_an_edge_of_weight_0_is_none(kind):
    weighted = graph_of(PATH, torch.tensor([3.0, 3.0, 0.0, 0.0])).operator(kind)
    alone = graph_of([[1], [0], []], torch.tensor([3.0, 3.0])).operator(kind)
    assert torch.equal(weighted.to_dense(), alone.to_dense())


@pytest.fixture(scope="module")
def client(tiny, run_config, tmp_path_factory):
    """A function that opens the tiny graph with these weights as a client."""

    def opened(weights, inductive=False, **reading):
        folder = tmp_path_factory.mktemp("weights") / "client"
        graph = replace(knowledge_graph(read_folder(tiny)), edge_texts=None)
        write_whole(replace(graph, weights=weights(graph)), run_config(), folder)
        return ClientData(folder, torch.device("cpu"), inductive, ReadingConfig(**reading))

    return opened


def test_a_client_divides_by_its_largest_weight(client):
    data = client(lambda graph: graph.weights)
    assert data.graph.gates.unique().tolist() == [0.25, 0.5, 0.75, 1.0]
    # In training too: an edge has one weight.
    data = client(lambda graph: np.where(graph.weights == 4, 1, graph.weights), inductive=True)
    rows, cols = data.training_graph.edges()
    assert not ((data.split[rows] == TEST) | (data.split[cols] == TEST)).any()
    whole = dict(
        zip(
            zip(*map(torch.Tensor.tolist, data.graph.edges()), strict=True),
            data.graph.gates.tolist(),
            strict=True,
        )
    )
    pairs = zip(rows.tolist(), cols.tolist(), strict=True)
    assert [whole[pair] for pair in pairs] == data.training_graph.gates.tolist()


def test_equal_weights_give_the_operator_of_none(client):
    none = client(lambda graph: None)
    equal = client(lambda graph: np.full(len(graph.indices), 0.3, np.float32))
    assert none.graph.gates is equal.graph.gates is None
    for kind in ("gcn", "mean", "sum", "loops"):
        one, other = none.graph.operator(kind), equal.graph.operator(kind)
        assert one.values().numpy().tobytes() == other.values().numpy().tobytes()


def test_gates_of_agreement_multiply_the_weights(client):
    data = client(lambda graph: graph.weights, edge_gates="agreement")
    agreeing = client(lambda graph: None, edge_gates="agreement").graph.gates
    weights = client(lambda graph: graph.weights).graph.gates
    assert torch.equal(data.graph.gates, agreeing * weights)
