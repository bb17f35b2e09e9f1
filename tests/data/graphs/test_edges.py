"""Weights and texts of edges: sums, round trips through files and PyG, subgraphs, refusals."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import knowledge_graph, text_graph
from torch_geometric.data import Data

from dance_flwr.data.graphs.edges import EdgeTexts, csr_weights
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition.random_edges import with_random_edges
from dance_flwr.errors import DataError


def ends(*pairs):
    return np.array(pairs, np.int64).reshape(-1, 2).T


def weighted(graph):
    """Weight of each pair (low, high)."""
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)).tolist()
    entries = zip(source, graph.indices.tolist(), graph.weights.tolist(), strict=True)
    pairs: dict = {}
    for a, b, weight in entries:
        pairs.setdefault((min(a, b), max(a, b)), set()).add(weight)
    assert all(len(values) == 1 for values in pairs.values()), "symmetric to the last bit"
    return {pair: values.pop() for pair, values in pairs.items()}


def listed(texts):
    return list(zip(texts.source.tolist(), texts.target.tolist(), texts.texts, strict=True))


def same(one, other):
    """Both graphs have the same edges, weights and texts, the latter in the same order."""
    assert (one.indptr == other.indptr).all() and (one.indices == other.indices).all()
    assert (one.weights is None) == (other.weights is None)
    assert one.weights is None or one.weights.tobytes() == other.weights.tobytes()
    assert (one.edge_texts is None) == (other.edge_texts is None)
    assert one.edge_texts is None or listed(one.edge_texts) == listed(other.edge_texts)


@st.composite
def graphs(draw):
    """Graphs with weights, texts, both or none; edges may be listed again and both ways."""
    n = draw(st.integers(1, 6))
    node = st.integers(0, n - 1)
    text = st.sampled_from(["", "is a", "café ⟦1⟧\n", " b "])
    weight = st.floats(0, 1e6, width=32)
    rows = draw(st.lists(st.tuples(node, node, text, weight), max_size=8))
    source, target = ends(*[row[:2] for row in rows])
    graph = text_graph(
        "g", [f"id {i}" for i in range(n)], ["x"] * n, [0] * n, [r[:2] for r in rows]
    )
    csr = graph.indptr, graph.indices
    weights = np.array([row[3] for row in rows], np.float32)
    return replace(
        graph,
        weights=draw(st.sampled_from([None, csr_weights(csr, source, target, weights)])),
        edge_texts=draw(
            st.sampled_from([None, EdgeTexts.of(source, target, [row[2] for row in rows])])
        ),
    )


@given(graphs())
def test_a_folder_holds_a_graph_with_its_weights_and_texts(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("folder")
    write_folder(graph, folder)
    same(read_folder(folder), graph)


@given(graphs())
def test_pyg_holds_a_graph_with_its_weights_and_texts(graph):
    data = graph.to_pyg()
    assert ("edge_weight" in data) == (graph.weights is not None)
    again = TextGraph.from_pyg(data, graph.texts, ids=graph.ids.tolist())
    assert (again.indices == graph.indices).all()
    # PyG has no edge of weight 0 or without a text that is not there: what it can hold comes back.
    if graph.weights is not None:
        assert again.weights.tobytes() == graph.weights.tobytes()
    of_edge: dict = {}
    for a, b, text in listed(graph.edge_texts) if graph.edge_texts else []:
        of_edge.setdefault((min(a, b), max(a, b)), []).append(text)
    expected = sorted((a, b, "\n\n".join(texts)) for (a, b), texts in of_edge.items())
    assert (listed(again.edge_texts) if again.edge_texts else []) == expected


def test_a_graph_of_pyg_that_is_directed_has_its_reciprocal_edges_summed():
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=3)
    data.edge_weight, data.edge_text = torch.tensor([1.0, 2.0, 4.0]), ["likes", "knows", "sees"]
    graph = TextGraph.from_pyg(data, ["a", "b", "c"])
    assert weighted(graph) == {(0, 1): 3.0, (1, 2): 4.0}
    assert listed(graph.edge_texts) == [(0, 1, "likes"), (1, 0, "knows"), (1, 2, "sees")]


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("edge_weight", torch.tensor([1.0]), "column of edge_index, found others in edge_weight"),
        ("edge_weight", torch.tensor([1.0, -1.0]), "row 2: expected a number of at least 0"),
        ("edge_weight", torch.tensor([torch.nan, 1.0]), "row 1: expected a number"),
        ("edge_text", ["a"], "column of edge_index, found others in edge_text"),
        ("site", ["a", "b"], "a value for each node or column of edge_index, found others in site"),
        ("edge_text", ["a", 3], "'edge_text': expected a text at place 2 of the list, found 3"),
    ],
)
def test_attributes_of_pyg_that_do_not_fit_are_refused(attribute, value, message):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    data[attribute] = value
    with pytest.raises(DataError, match=message):
        TextGraph.from_pyg(data, ["a", "b", "c"])


def test_a_subgraph_has_the_weights_and_texts_inside_it(tiny):
    whole = knowledge_graph(read_folder(tiny))
    nodes = np.random.default_rng(1).permutation(72)[:40]
    part = whole.subgraph(nodes, "part")
    place = {node: row for row, node in enumerate(nodes.tolist())}
    assert part.num_edges > 30 and len(part.edge_texts) == 20
    assert weighted(part) == {
        tuple(sorted((place[a], place[b]))): weight
        for (a, b), weight in weighted(whole).items()
        if a in place and b in place
    }
    assert listed(part.edge_texts) == [
        (place[a], place[b], text)
        for a, b, text in listed(whole.edge_texts)
        if a in place and b in place
    ]


def test_a_subgraph_of_few_nodes_costs_what_they_cost():
    """Or a partition of 10,000 clients takes hours."""
    draw = np.random.default_rng(0).integers(0, 1000, (200_000, 2))
    whole = text_graph("whole", [str(i) for i in range(1000)], ["a"] * 1000, [0] * 1000, draw)
    tracemalloc.start()
    part = whole.subgraph(np.array([7, 3]), "part")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert part.num_nodes == 2 and most < whole.num_edges


def test_random_edges_are_those_of_the_graph_without_weights(tiny):
    graph = knowledge_graph(read_folder(tiny))
    plain = with_random_edges(replace(graph, weights=None, edge_texts=None), 0.5, 3, 1)
    noisy = with_random_edges(graph, 0.5, 3, 1)
    assert (noisy.indices == plain.indices).all() and noisy.num_edges > graph.num_edges
    before, after = weighted(graph), weighted(noisy)
    assert before.items() <= after.items() and {*after.values()} == {*before.values()}
    assert listed(noisy.edge_texts) == listed(graph.edge_texts)


def table(folder, **columns):
    """A folder of three nodes and two edges with further columns."""
    write_folder(text_graph("g", list("abc"), ["x"] * 3, [0] * 3, [(0, 1), (1, 2)]), folder)
    edges = {"source": ["a", "b"], "target": ["b", "c"], **columns}
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    return folder


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["1", "heavy"], "expected a number in every row of 'weight', found .*heavy"),
        ([1.0, None], "expected a number in every row of 'weight'"),
        ([1.0, -2.0], "expected finite weights of edges >= 0, found -2.0 in row 2"),
        ([1.0, float("inf")], "found inf in row 2"),
    ],
)
def test_a_weight_that_is_none_is_refused(tmp_path, weights, message):
    with pytest.raises(DataError, match=message):
        read_folder(table(tmp_path, weight=weights))


def test_texts_of_nodes_that_are_not_there_are_refused():
    graph = text_graph("g", list("ab"), ["x"] * 2, [0] * 2, [(0, 1)])
    with pytest.raises(DataError, match=r"expected two nodes in 0..1 for each of 1 texts of edges"):
        replace(graph, edge_texts=EdgeTexts(np.array([0]), np.array([2]), ("x",)))
