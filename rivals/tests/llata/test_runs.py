"""LLaTA and its controls in runs: FedAvg where nothing changes, and what a client keeps."""

import json

import numpy as np
import pytest
import torch
from dance_flwr_rivals.llata.asking import planned_calls
from dance_flwr_rivals.refined_graph import GRAPHS as REFINED
from support.graphs import WORDS, sentences

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.llm.session import Session
from dance_flwr.methods import get_spec

METHODS = ("llata", "llata-cosine", "llata-propagation")
FAST = {"rounds": 2, "local_epochs": 2}


def edges_of(graph):
    return set(zip(*(ends.tolist() for ends in graph.edges()), strict=True))


def graphs(data, config, run="r"):
    return get_spec(config.method).make_client().graphs(data, config, run)


@pytest.fixture
def site_of(run_config):
    """A function that opens client 0 of a configuration."""

    def make(**keys):
        config = run_config(**{"clients": 3, **keys})
        inductive = config.split_mode == "inductive"
        return ClientData(
            prepare(config).folder / "client-0", torch.device("cpu"), inductive
        ), config

    return make


@pytest.mark.parametrize("split_mode", ["transductive", "inductive"])
@pytest.mark.parametrize("method", METHODS)
def test_the_refined_graph(site_of, method, split_mode):
    data, config = site_of(method=method, split_mode=split_mode, seed=3)
    found, before = graphs(data, config), edges_of(data.training_graph)
    training, whole = edges_of(found["training"]), edges_of(found["whole"])
    assert training == {(b, a) for a, b in training} and all(a != b for a, b in training)
    assert training - before and before - training
    assert len(training) <= 1.5 * len(before)
    test = set(torch.nonzero(data.split == TEST).flatten().tolist())
    if split_mode == "transductive":
        assert found["whole"] is found["training"]
    else:
        assert not any({a, b} & test for a, b in training)
        at_test = {(a, b) for a, b in edges_of(data.graph) if {a, b} & test}
        assert at_test and whole == training | at_test
    for graph in found.values():
        near = [
            graph.rows.index[a:b].tolist()
            for a, b in zip(graph.rows.ptr, graph.rows.ptr[1:], strict=False)
        ]
        assert all(row == sorted(set(row)) for row in near)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_computed_once_a_run_and_again_if_lost(site_of, method, monkeypatch):
    data, config = site_of(method=method, seed=4)
    first = graphs(data, config)
    folder = data.folder / "runs" / "r"
    kept = (folder / REFINED).read_bytes()
    assert graphs(data, config)["whole"] is first["whole"], "in memory"
    fresh = ClientData(data.folder, data.device)
    monkeypatch.setattr(
        "dance_flwr_rivals.llata.client.refined_pairs", lambda *_: pytest.fail("computed")
    )
    assert edges_of(graphs(fresh, config)["whole"]) == edges_of(first["whole"])
    monkeypatch.undo()
    for harm in ((folder / REFINED).unlink, lambda: (folder / REFINED).write_bytes(b"PK damaged")):
        harm()
        again = ClientData(data.folder, data.device)
        assert edges_of(graphs(again, config)["whole"]) == edges_of(first["whole"])
        assert (folder / REFINED).read_bytes() == kept
    other = site_of(method=method, seed=4, **{"llata.added-ratio-of-edges": 0.1})[1]
    assert edges_of(graphs(data, other)["whole"]) != edges_of(first["whole"]), "other settings"


def crafted_client(crafted, name, order, texts, labels, split, edges):
    """A client whose node v of the unpermuted graph is number `order.index(v)`."""
    place = {v: number for number, v in enumerate(order)}
    return crafted(
        name,
        [f"c0-{v:02d}" for v in order],
        [texts[v] for v in order],
        [labels[v] for v in order],
        [(place[a], place[b]) for a, b in edges],
        [split[v] for v in order],
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_permutation_of_node_numbers_permutes_the_result(crafted, site_of, method):
    """Communities of equal entropy are there on purpose: cycles, and nodes without an edge."""
    rng, n = np.random.default_rng(5), 30
    labels = [v % 3 for v in range(n)]
    texts = [sentences(rng, WORDS[sorted(WORDS)[label]], 2) for label in labels]
    split = [(TRAIN, TRAIN, VAL, TEST)[v % 4] for v in range(n)]
    edges = [(v, (v + 1) % 12) for v in range(12)] + [(12 + v, 12 + (v + 1) % 8) for v in range(8)]
    edges += [(20, 21), (21, 22), (22, 23), (20, 23), (0, 12), (3, 20)]
    found = []
    for name, order in (("straight", range(n)), ("shuffled", rng.permutation(n).tolist())):
        data = crafted_client(crafted, name, list(order), texts, labels, split, edges)
        client_data, config = site_of(method=method, data=data, partition="random", clients=1)
        assert client_data.num_nodes == n
        ids = client_data.ids()
        graph = graphs(client_data, config, name)["whole"]
        arrays = np.load(client_data.folder / "runs" / name / REFINED)
        soft = {ids[v]: arrays["soft_labels"][v].tolist() for v in range(n)}
        found.append(({(ids[a], ids[b]) for a, b in edges_of(graph)}, soft))
    assert found[0] == found[1]


def prompts_of(data, config, monkeypatch, run):
    """The messages of all calls of a client."""
    seen, ask = [], Session.ask
    with monkeypatch.context() as patch:
        patch.setattr(Session, "ask", lambda self, prompt: seen.append(prompt) or ask(self, prompt))
        graphs(data, config, run)
    return seen


@pytest.mark.parametrize("split_mode", ["transductive", "inductive"])
def test_no_label_of_a_validation_or_test_node_is_in_a_prompt(
    crafted, site_of, monkeypatch, split_mode
):
    """Classes that held-out nodes alone have are named in the list of classes, and nowhere else."""
    n, rng = 24, np.random.default_rng(1)
    split = [(TRAIN, TRAIN, VAL, TEST)[v % 4] for v in range(n)]
    labels = [{TRAIN: v % 2, VAL: 2, TEST: 2}[code] for v, code in enumerate(split)]
    texts = [sentences(rng, WORDS["cooking"], 2) for _ in range(n)]
    edges = [(v, (v + 1) % n) for v in range(n)] + [(v, (v + 2) % n) for v in range(n)]
    data = crafted("planted", [f"c0-{v:02d}" for v in range(n)], texts, labels, edges, split)
    client_data, config = site_of(
        method="llata", data=data, partition="random", clients=1, split_mode=split_mode
    )
    planted, seen = (
        client_data.card.class_names[2],
        prompts_of(client_data, config, monkeypatch, "planted"),
    )
    assert len(seen) >= 5 and sum(prompt.text.count("Class: ") for prompt in seen) > 5
    assert all(prompt.text.count(planted) == 1 for prompt in seen)
    asked = [text for prompt in seen for text in prompt.facts["targets"]]
    assert len(asked) == (n if split_mode == "transductive" else n - 6)
    if split_mode == "inductive":
        hidden = {text for text, code in zip(texts, split, strict=True) if code == TEST}
        shown = {text for prompt in seen for text, _ in prompt.facts["members"]}
        assert not hidden & (shown | set(asked)), "nor the text of a test node"
    changed = ClientData(client_data.folder, client_data.device, client_data.inductive)
    held_out = changed.split != TRAIN
    changed.labels = torch.where(held_out, (changed.labels + 1) % 3, changed.labels)
    again = prompts_of(changed, config, monkeypatch, "changed")
    assert [prompt.text for prompt in again] == [prompt.text for prompt in seen]


@pytest.mark.parametrize("method", METHODS)
def test_held_out_labels_change_no_edge(site_of, method):
    data, config = site_of(method=method, seed=6)
    own = graphs(data, config, "own")
    changed = ClientData(data.folder, data.device)
    changed.labels = torch.where(changed.split != TRAIN, (changed.labels + 1) % 3, changed.labels)
    other = graphs(changed, config, "other")
    assert edges_of(own["whole"]) == edges_of(other["whole"])


def test_the_second_run_asks_nothing_and_the_plan_bounds_what_is_spent(site_of):
    data, config = site_of(method="llata", seed=7)
    calls, tokens = planned_calls(data, config)
    assert not (data.folder / "llm").exists() or not list((data.folder / "llm").rglob("*.json"))
    ledgers = []
    for run in ("first", "second"):
        graphs(ClientData(data.folder, data.device), config, run)
        ledgers.append(json.loads((data.folder / "runs" / run / "llm.json").read_text("utf-8")))
    first, second = ledgers
    assert first["fresh_calls"] == calls > 3 and first["capped_calls"] == 0
    assert first["fresh_prompt"] + first["fresh_completion"] <= tokens
    assert second["fresh_calls"] == 0 and second["cached_calls"] == calls
    assert planned_calls(data, config) == (calls, tokens)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_scores_the_raw_graph_too(run, method):
    (reply, *_) = run(method=method, **FAST).replies("evaluate")[-3:]
    metrics = reply.content.metric_records["metrics"]
    assert {"test-correct-raw", "test-correct-deployed"} <= metrics.keys()
