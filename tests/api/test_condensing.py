"""Condensing one graph: the core that clients select, by seed, with and without a model."""

import numpy as np
import pytest
import torch
from support.graphs import SMALL, text_graph

from dance_flwr.api import UserError, condense, encode
from dance_flwr.dance.nodes import node_budget
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.graphs.graph import TRAIN
from dance_flwr.federation.client.client import open_client
from dance_flwr.runs.result import load_model

KEYS = {
    key: value
    for key, value in SMALL.items()
    if key.startswith("dance.") or key in ("hidden-dim", "chunk-tokens", "max-chunks")
}
KEYS |= {"encoder-precision": "float32"}


@pytest.fixture(scope="module")
def core(graph):
    return condense(graph, ratio_of_nodes=0.5, config=KEYS)


def test_a_core_has_the_nodes_labels_texts_and_edges_that_it_says(graph, core):
    count = node_budget(graph.num_nodes, 0.5)
    assert len(core) == core.nodes.numel() == count <= graph.num_nodes
    assert (core.nodes.diff() > 0).all() and list(core.ids) == graph.ids[core.nodes].tolist()
    training = torch.as_tensor(graph.split[core.nodes] == TRAIN)
    assert core.known.tolist() == training.tolist()
    own = torch.as_tensor(graph.labels[core.nodes])
    assert (core.labels[core.known] == own[core.known]).all()
    assert torch.allclose(core.probabilities.sum(1), torch.ones(count), atol=1e-5)
    assert core.features.shape == (count, 384) and (core.difficulty >= 0).all()
    rows, cols = core.edge_index
    pairs = set(zip(rows.tolist(), cols.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs} and all(a != b for a, b in pairs)
    assert (core.edge_weight > 0).all() and core.edge_weight.numel() == len(rows)
    assert [node.id for node in core.evidence] == list(core.ids)
    assert core.coverage["ratio_of_nodes"] == count / graph.num_nodes
    spans = sum(len(node.spans) for node in core.evidence)
    assert spans == core.counts["evidence-chunks"]
    assert f"{count} of {graph.num_nodes} nodes" in repr(core)


def test_the_seed_decides(graph, core):
    again = condense(graph, ratio_of_nodes=0.5, config=KEYS)
    assert torch.equal(again.features, core.features) and again.ids == core.ids
    assert torch.equal(again.edge_weight, core.edge_weight)
    other = condense(graph, ratio_of_nodes=0.5, config=KEYS, seed=1)
    assert not torch.equal(other.features, core.features)


def test_the_core_is_that_of_a_client_in_round_1(dance):
    """A run's first evidence packs are of the core of round 1, under the initial model."""
    from dance_flwr.evidence.pack import Packs

    first = Packs.load(dance.store(0).round_path(1))
    graph = read_folder(dance.partition / "client-0")
    keys = {key: value for key, value in SMALL.items() if key != "condensation-ratio"}
    # The core of this run moves.
    keys |= {"dance.core-rule": "label-aware"}
    mine = condense(graph, ratio_of_nodes=dance.config.condensation_ratio, config=keys)
    packs = mine.evidence.packs
    assert packs.model_id == first.model_id and mine.nodes.tolist() == first.nodes.tolist()
    assert (packs.chunks == first.chunks).all() and (packs.neighbours == first.neighbours).all()
    np.testing.assert_allclose(packs.chunk_weights, first.chunk_weights, atol=1e-6)
    np.testing.assert_allclose(mine.probabilities, first.decisive, atol=1e-6)


def test_a_trained_model_condenses_by_what_it_has_learnt(dance, graph, model):
    core = condense(graph, ratio_of_nodes=0.5, model=model)
    assert core.evidence.model_id == model.model_id and core.class_names == model.class_names
    client = open_client(dance.partition / "client-2", dance.config)
    client.load(load_model(dance.folder))
    place = {name: row for row, name in enumerate(client.data.ids())}
    assert [place[name] for name in core.ids] == core.nodes.tolist()
    with pytest.raises(UserError, match=r"expected keys dance\.\* with a trained model"):
        condense(graph, model=model, config={"rounds": 3})


def test_a_model_condenses_a_graph_without_labels(graph, model):
    bare = text_graph("bare", graph.ids, graph.texts, -np.ones_like(graph.labels), [])
    core = condense(bare, ratio_of_nodes=0.2, model=model)
    assert not core.known.any() and (core.labels >= 0).all()
    assert core.edge_index.shape[0] == 2
    with pytest.raises(UserError, match="expected some labels"):
        condense(bare, config={"dance.core-rule": "label-aware"})


def test_without_labels_the_texts_cover_the_graph(graph):
    """By the definition: the first text is the most similar one on average, each of the others adds
    most, and a node counts for the chosen text that is nearest to it.
    """
    bare = text_graph("bare", graph.ids, graph.texts, -np.ones_like(graph.labels), [])
    core = condense(bare, texts=7, config=KEYS)
    assert len(core) == 7 and core.class_names == () and not core.known.any()
    assert (core.labels == -1).all() and core.probabilities.shape == (7, 0)
    assert core.stands_for.sum() == graph.num_nodes
    texts = torch.nn.functional.layer_norm(encode(bare, config=KEYS), (384,))
    points = torch.nn.functional.normalize(texts, dim=1)  # no edges: P = I
    similar = (1 + points @ points.T) / 2
    chosen: list[int] = []
    for _ in range(7):
        best = similar[:, chosen].max(1).values if chosen else torch.zeros(len(similar))
        gains = torch.maximum(similar, best[:, None]).sum(0)
        chosen.append(int(gains.argmax()))
    assert core.nodes.tolist() == sorted(chosen)


def test_a_core_says_what_its_texts_stand_for(graph):
    core = condense(graph, texts=np.int64(9), config=KEYS)
    of = dict(zip(graph.ids.tolist(), graph.texts, strict=True))
    assert [of[name] for name in core.ids] == list(core.texts)
    assert len(core.stands_for) == 9 and core.stands_for.min() >= 1


def test_test_labels_decide_nothing(graph, core):
    from dataclasses import replace

    hidden = np.where(graph.split == TRAIN, graph.labels, (graph.labels + 1) % 3)
    blind = condense(replace(graph, labels=hidden), ratio_of_nodes=0.5, config=KEYS)
    assert torch.equal(blind.nodes, core.nodes) and torch.equal(blind.features, core.features)
    assert torch.equal(blind.labels, core.labels)


def test_a_network_of_torch_geometric_reads_the_core_and_the_graph(graph, core):
    """That one learns from it is shown in notebooks/condense_a_graph.ipynb."""
    small, features = core.to_pyg(), encode(graph, config=KEYS)
    assert small.validate() and small.n_id.tolist() == core.nodes.tolist()
    assert features.shape == (graph.num_nodes, small.x.size(1))
    assert small.train_mask.tolist() == core.known.tolist()
    assert small.y.tolist() == core.labels.tolist()


def test_labels_without_a_split_are_all_for_training(graph):
    from dataclasses import replace

    whole = replace(graph, split=np.zeros_like(graph.split))
    core = condense(whole, ratio_of_nodes=1, config=KEYS)
    assert core.known.all() and len(core) == graph.num_nodes
