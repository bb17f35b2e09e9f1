"""Settings beside the method: averaged models, smoothing, the ablations, and `paper = true`."""

import numpy as np
import pytest
import torch
from support.builders import lists, make_client, ragged, random_csr, rows_of, split

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import pooling_weights
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import neighbour_labels, predict
from dance_flwr.dance.nodes import Pool, Prediction, condense_nodes, node_budget
from dance_flwr.dance.passes import Reader
from dance_flwr.data.graphs.graph import TEST, TRAIN
from dance_flwr.evidence.pack import Packs
from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.client.client import open_client
from dance_flwr.federation.client.smoothing import correct_and_smooth
from dance_flwr.federation.wire.messages import arrays_of, state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.ragged import Ragged, weighted_rows
from dance_flwr.runs.result import load_model


def test_the_running_average_weighs_older_models_less():
    models = [
        {"w": torch.full((2,), value), "b": torch.tensor(-value)} for value in (1.0, 2.0, 5.0)
    ]
    average = ModelAverage(0.5)
    found = [state_of(average.add(arrays_of(model))) for model in models]
    for state, expected in zip(found, (1.0, (0.5 + 2) / 1.5, (0.25 + 1 + 5) / 1.75), strict=True):
        assert (
            state["w"].tolist() == pytest.approx([expected] * 2)
            and state["w"].dtype == torch.float32
        )
        assert float(state["b"]) == pytest.approx(-expected)


def test_averaging_changes_what_is_kept_and_not_what_is_trained(run):
    plain, averaged = run(rounds=3), run(rounds=3, ema_decay=0.9)
    assert [row["loss"] for row in plain.result["history"]] == [
        row["loss"] for row in averaged.result["history"]
    ]
    kept, last = load_model(averaged.folder), load_model(plain.folder)
    assert averaged.result["best_round"] == 1 or not torch.equal(
        kept["head_graph.weight"], last["head_graph.weight"]
    )
    first = state_of(averaged.replies("train")[0].content.array_records["arrays"])
    assert first.keys() == kept.keys()


class _Labelled:
    """What smoothing reads of a site."""

    def __init__(self, graph, train_labels):
        self.graph, self.train_labels = graph, train_labels


def smoothing_by_loops(probs, labels, indptr, indices):
    """Correct and smooth on a dense matrix, step by step; autoscaled."""
    n, classes = probs.shape
    adjacency = np.zeros((n, n))
    for v in range(n):
        adjacency[v, indices[indptr[v] : indptr[v + 1]]] = 1
    degree = adjacency.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    spread = scale[:, None] * adjacency * scale[None]
    known = labels >= 0
    truth = np.eye(classes)[labels[known]]
    error = np.zeros_like(probs)
    error[known] = truth - probs[known]
    moved = error
    for _ in range(50):
        moved = np.clip(0.8 * spread @ moved + 0.2 * error, -1, 1)
    sigma = np.abs(error[known]).sum() / known.sum()
    for v in range(n):
        size = np.abs(moved[v]).sum()
        factor = sigma / size if size and sigma / size <= 1000 else 1.0
        probs = probs.copy()
        probs[v] += factor * moved[v]
    start = probs.copy()
    start[known] = truth
    out = start
    for _ in range(50):
        out = np.clip(0.8 * spread @ out + 0.2 * start, 0, 1)
    return out


@pytest.mark.parametrize("seed", range(4))
def test_correct_and_smooth_is_that_of_the_loops(seed):
    rng = np.random.default_rng(seed)
    indptr, indices = random_csr(rng, 14, 0.2)
    probs = rng.dirichlet(np.ones(3), 14)
    labels = np.where(rng.random(14) < 0.5, rng.integers(0, 3, 14), -1)
    labels[0] = 1
    graph = LocalGraph(rows_of((indptr, indices)), torch.ones(14, dtype=torch.bool))
    found = correct_and_smooth(torch.tensor(probs), _Labelled(graph, torch.tensor(labels))).numpy()
    wanted = smoothing_by_loops(probs, labels, indptr, indices)
    np.testing.assert_allclose(found, wanted / wanted.sum(1, keepdims=True), atol=1e-6)
    assert np.isfinite(found).all()


def test_smoothing_without_training_labels_changes_nothing():
    graph = LocalGraph(ragged([[1], [0]]), torch.ones(2, dtype=torch.bool))
    probs = torch.tensor([[0.3, 0.7], [0.6, 0.4]])
    assert correct_and_smooth(probs, _Labelled(graph, torch.tensor([-1, -1]))) is probs


def test_smoothing_never_reads_a_test_label(run, monkeypatch):
    from dance_flwr.client_data.client_data import ClientData

    finished = run(smoothing="correct-and-smooth", rounds=1)
    client = open_client(finished.partition / "client-0", finished.settled)
    client.model.load_state_dict(load_model(finished.folder))
    info = RoundInfo(finished.result["run"], 1, "")
    everyone = torch.arange(client.data.num_nodes)
    before = client.predict(info, everyone)["deployed"]
    changed = torch.where(client.data.split == TRAIN, client.data.labels, 2 - client.data.labels)
    assert int((client.data.split == TEST).sum()) and not torch.equal(changed, client.data.labels)
    monkeypatch.setattr(ClientData, "labels", changed)
    monkeypatch.setattr(client.data, "labels", changed, raising=False)
    client.data.__dict__.pop("train_labels", None)
    assert torch.equal(client.predict(info, everyone)["deployed"], before)
    raw = client.method.predict(client.model, client.data, finished.config, info, everyone)
    assert not torch.equal(raw["deployed"], before)
    some = torch.tensor([5, 2, 9])
    assert torch.equal(client.predict(info, some)["deployed"], before[some])


@pytest.mark.parametrize("pooling", ["attention", "agreement"])
@pytest.mark.parametrize("every", [1, 0])
def test_own_text_is_recorded_with_the_weights_of_the_chunks_in_it(run, pooling, every):
    finished = run(
        rounds=2, dance_text_rule="own", dance_text_refresh_every=every, text_pooling=pooling
    )
    data, dropped = finished.data(0), False
    for packs in map(Packs.load, finished.store(0).all_packs()):
        rows = Ragged(torch.tensor(packs.chunk_ptr), torch.tensor(packs.chunks))
        found = weighted_rows(torch.tensor(packs.chunk_weights), rows, data.table.chunks)
        torch.testing.assert_close(found, data.table.nodes[packs.nodes], atol=1e-6, rtol=1e-5)
        of_node = data.table.chunks_of.ptr.diff()[packs.nodes]
        dropped |= bool((rows.ptr.diff() < of_node).any())
    assert dropped == (pooling == "agreement")  # a chunk that the model did not read is no evidence


def test_neighbour_labels_are_the_gated_training_labels_of_each_hop():
    client = make_client(11, 20, 0.25, 3.0, DanceConfig())
    selection = client.select()
    labels = [v % 3 if v % 4 else -1 for v in range(20)]
    table = torch.zeros(20, 3, dtype=torch.float64)
    for v, label in enumerate(labels):
        if label >= 0:
            table[v, label] = 1
    found = neighbour_labels(selection, table)
    wanted = np.zeros((client.nodes.numel(), 6))
    for hop in (1, 2):
        gates = split(selection.gates[hop], selection.hops[hop].ptr)
        for row, (nodes, weights) in enumerate(zip(lists(selection.hops[hop]), gates, strict=True)):
            for node, weight in zip(nodes, weights, strict=True):
                if labels[node] >= 0:
                    wanted[row, 3 * (hop - 1) + labels[node]] += weight
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)
    assert wanted.any()


def test_a_label_is_evidence_for_neighbours_and_never_for_the_node_itself(run):
    finished = run(rounds=2, dance_label_evidence=True, dance_views="fused")
    client = open_client(finished.partition / "client-0", finished.settled)
    client.model.load_state_dict(load_model(finished.folder))
    model, data = (
        client.model,
        finished.data(0),
    )  # a site of its own: the client's is shared by other runs
    torch.nn.init.normal_(model.head_labels.weight)
    settings = DanceConfig.of(finished.config)
    node = next(
        int(v) for v in (data.train_labels >= 0).nonzero() if data.graph.hops().one(v).index.numel()
    )
    before = predict(Reader(model, data, settings, data.graph))["deployed"]
    data.label_table[node] = data.label_table[node].roll(1)
    after = predict(Reader(model, data, settings, data.graph))["deployed"]
    assert torch.equal(before[node], after[node]) and not torch.equal(before, after)


@pytest.mark.parametrize(
    "keys",
    [
        {"dance_core_rule": "random"},
        {"dance_core_rule": "random-labelled", "loss_weights": "balanced"},
        {"dance_core_rule": "coverage"},
        {"dance_text_rule": "own"},
        {"dance_text_rule": "own", "dance_text_refresh_every": 0},
        {"dance_topology_rule": "induced"},
        {"dance_topology_rule": "none"},
        {"dance_label_evidence": False},
        {"dance_align_weight": 0.0},
        {"dance_views": "plain+core+fused", "dance_text_refresh_every": 0},
        {"paper": True},
        {"paper": True, "dance_views": "fused", "smoothing": "correct-and-smooth"},
    ],
    ids=str,
)
def test_every_variant_runs_and_leaves_evidence_that_verifies(run, reference, cli, keys):
    few = {"rounds": 2, "local_epochs": 1}
    finished, full = run(**few, **keys), reference(**few)
    assert finished.result["history"][1]["loss"] != full.result["history"][1]["loss"]
    assert cli("evidence", "verify", finished.folder).code == 0


def test_a_random_core_has_the_budget_and_ignores_labels():
    prediction = Prediction.of(torch.zeros(50, 4), torch.full((50, 3), 1 / 3))
    visible = torch.arange(50) % 5 > 0
    config, labels = DanceConfig(core_rule="random"), torch.arange(50) % 3
    draws = [
        condense_nodes(
            prediction,
            Pool(labels * sign, torch.zeros(50, dtype=torch.int64), visible),
            config,
            0.2,
            torch.Generator().manual_seed(seed),
        ).core(0)
        for seed, sign in ((1, 1), (1, -1), (2, 1))
    ]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert draws[0].numel() == node_budget(40, 0.2) and bool(visible[draws[0]].all())
    assert draws[0].tolist() == sorted(set(draws[0].tolist()))


def test_own_text_is_the_pooled_text_and_all_chunks_of_the_node_alone():
    client = make_client(5, 15, 0.3, 1.0, DanceConfig(text_rule="own"))
    selection = client.select()
    assert lists(selection.hops[0]) == [[v] for v in client.nodes.tolist()]
    assert selection.hops[1].index.numel() == selection.hops[2].index.numel() == 0
    for found in (*client.texts(selection), selection.context):
        torch.testing.assert_close(found, client.table.nodes[client.nodes])
    assert lists(selection.chunks) == [
        lists(client.table.chunks_of)[v] for v in client.nodes.tolist()
    ]
    alone = pooling_weights(client.table.chunks, client.table.chunks_of.ptr)[selection.chunks.index]
    torch.testing.assert_close(selection.chunk_weights, alone)
