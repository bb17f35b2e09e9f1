"""LLM4FGL: predictor, links and feedback against naive twins; prompts; runs that lose or lie."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from dance_flwr_rivals.llm4fgl import Llm4FglConfig, writing
from dance_flwr_rivals.llm4fgl.client import Llm4FglRecombined, feedback_of, quality_of
from dance_flwr_rivals.llm4fgl.generation import load_latest, origins_of, poorest
from dance_flwr_rivals.llm4fgl.predictor import (
    EdgePredictor,
    LocalPairs,
    link,
    nearest,
    train_predictor,
)
from dance_flwr_rivals.llm4fgl.writing import Task, prompts_of, recombined
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_llm4fgl as oracle
from rival_support.random_graphs import random_graph
from sklearn.metrics import roc_auc_score
from support.altered import unlike
from support.builders import rows_of
from support.graphs import WORDS
from support.models import equal, models
from torch.nn import functional as F

import client_app
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.data.text.chunking import split_sentences
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import config_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.result import load_model
from dance_flwr.seeding import generator

BOTH = ["llm4fgl", "llm4fgl-recombined"]
SENTINEL = "Xylograph"  # a word of replies that no text of a client has


def unit(rng, n, d=6):
    return F.normalize(torch.tensor(rng.standard_normal((n, d))).float(), dim=1)


# The predictor


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.6]))
def test_pairs_are_every_edge_once_and_random_pairs_that_are_none(seed, density):
    graph, *_ = random_graph(seed, 14, density, 0.85)
    pairs = LocalPairs(graph, seed, 0)
    rows, cols = graph.edges()
    edges = {(u, v) for u, v in zip(rows.tolist(), cols.tolist(), strict=True) if u < v}
    parts = [set(map(tuple, part.T.tolist())) for part in (pairs.trained, pairs.held_out)]
    assert parts[0] | parts[1] == edges and not parts[0] & parts[1]
    assert len(parts[1]) == int(0.1 * len(edges))
    others = pairs.non_edges(40, generator(seed, "test")).T.tolist()
    assert len(others) <= 40
    for u, v in others:
        assert u != v and (min(u, v), max(u, v)) not in edges
        assert bool(graph.visible[u]) and bool(graph.visible[v])


def planted(seed, n=240):
    """A client whose nodes of one of 8 topics are linked, in a space of 20 dimensions."""
    rng = np.random.default_rng(seed)
    topics = np.eye(8, 20)[np.arange(n) % 8]
    texts = F.normalize(torch.tensor(topics + 0.3 * rng.standard_normal((n, 20))).float(), dim=1)
    chance = np.where((np.arange(n)[:, None] - np.arange(n)) % 8 == 0, 0.2, 0.002)
    upper = np.argwhere(np.triu(rng.random((n, n)) < chance, 1))
    both = np.concatenate([upper, upper[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    ptr = np.concatenate([[0], np.bincount(both[:, 0], minlength=n).cumsum()])
    graph = LocalGraph(rows_of((ptr, both[:, 1])), torch.ones(n, dtype=torch.bool))
    return texts, LocalPairs(graph, 0, seed)


def test_predictors_that_are_averaged_find_edges_that_no_client_trained_on():
    clients = [planted(seed) for seed in range(3)]
    torch.manual_seed(0)
    model = EdgePredictor(20, 32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for round_ in range(1, 11):
        states = []
        for client, (texts, pairs) in enumerate(clients):
            own = EdgePredictor(20, 32)
            own.load_state_dict(model.state_dict())
            draw = generator(0, "non-edges", round_=round_, client=client)
            train_predictor(own, texts, pairs, 10, draw)
            states.append(own.state_dict())
        model.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in before})
    for texts, pairs in clients:
        edges = pairs.held_out
        ends = torch.cat([edges, pairs.non_edges(edges.size(1), generator(0, "auc"))], dim=1)
        with torch.no_grad():
            scores = model(texts[ends[0]], texts[ends[1]])
        assert roc_auc_score(torch.arange(ends.size(1)) < edges.size(1), scores) > 0.8


# Links and the augmented graph


@given(st.integers(0, 10**6), st.integers(0, 9), st.sampled_from([0.0, 0.5, 0.9]))
def test_links_are_their_naive_twin(seed, generated, threshold):
    graph, _, rng = random_graph(seed, 14, seen=0.85)
    new, texts = unit(rng, generated), unit(rng, 14)
    torch.manual_seed(seed)
    model = EdgePredictor(6, 8)
    near = nearest(new, texts, graph.visible, 5)
    allowed = graph.visible.tolist()
    assert near.tolist() == oracle.nearest(new.double().numpy(), texts.double().numpy(), allowed, 5)

    def probability(g, v):
        with torch.no_grad():
            return float(torch.sigmoid(model(new[g, None], texts[v, None])))

    settings = Llm4FglConfig(threshold=threshold, links=3)
    linked = link(model, new, texts, graph.visible, settings)
    every = oracle.nearest(new.numpy(), texts.numpy(), allowed, 32)
    assert set(map(tuple, linked.T.tolist())) == set(oracle.links(probability, every, threshold, 3))


# Reflection


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_feedback_and_quality_are_their_naive_twins(seed, size):
    rng = np.random.default_rng(seed)
    confidence, predicted = rng.random(size), rng.integers(0, 4, size)
    tensors = torch.tensor(confidence).float(), torch.tensor(predicted)
    table = feedback_of(*tensors, 5)
    expected = oracle.feedback(confidence, predicted, 5)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-5)
    others = oracle.feedback(rng.random(9), rng.integers(0, 3, 9), 5)
    mean = torch.tensor(expected + others).float() / 7
    np.testing.assert_allclose(
        quality_of(*tensors, mean).numpy(),
        oracle.quality(confidence, predicted, expected + others),
        atol=1e-5,
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e30, 1e-40])
def test_a_lying_server_bounds_no_quality(value):
    confidence, predicted = torch.tensor([0.2, 0.9]), torch.tensor([0, 1])
    quality = quality_of(confidence, predicted, torch.full((2, 2), value))
    assert bool(torch.isfinite(quality).all()) and bool((quality.abs() <= 1).all())


@given(st.lists(st.tuples(st.floats(-1, 1), st.booleans()), max_size=20), st.floats(0, 1))
def test_the_poorest_texts_are_a_share_of_those_that_were_written(rows, ratio):
    texts = ["text" if written else "" for _, written in rows]
    quality = torch.tensor([value for value, _ in rows])
    chosen = poorest(quality, texts, ratio).tolist()
    written = [i for i, text in enumerate(texts) if text]
    assert chosen == sorted(set(chosen)) and set(chosen) <= set(written)
    assert len(chosen) == round(ratio * len(written))
    rest = [quality[i] for i in written if i not in chosen]
    assert not chosen or not rest or max(quality[chosen]) <= min(rest)


# Texts


@pytest.fixture(scope="module")
def data(run_config):
    from dance_flwr.data.prepare import prepare

    folder = prepare(run_config(clients=3)).folder / "client-1"
    return ClientData(folder, torch.device("cpu"))


def test_prompts_hold_texts_of_the_paper_and_its_neighbours_and_nothing_else(data):
    origins, texts, classes = origins_of(data, 1.0), data.texts(), [*WORDS]
    both = [*prompts_of(Task(origins), data)]
    both += prompts_of(Task(origins, ["A draft."] * len(origins)), data)
    assert len(both) == 2 * data.num_nodes
    for origin, prompt in zip(torch.cat([origins, origins]).tolist(), both, strict=True):
        near = data.training_graph.rows.index[
            data.training_graph.rows.ptr[origin] : data.training_graph.rows.ptr[origin + 1]
        ]
        allowed = {texts[node] for node in near.tolist()}
        assert prompt.facts["paper"] == texts[origin]
        assert set(prompt.facts["neighbours"]) <= allowed and len(prompt.facts["neighbours"]) <= 3
        assert prompt.facts.keys() <= {"paper", "neighbours", "draft"}
        assert not any(word in prompt.text.lower() for word in (*classes, *data.ids()))


def test_labels_change_no_prompt_and_no_choice(data):
    other = ClientData(data.folder, torch.device("cpu"))
    other.__dict__["labels"] = torch.full_like(data.labels, 2)
    other.__dict__["train_labels"] = torch.full_like(data.labels, 2)
    assert torch.equal(origins_of(data, 0.4), origins_of(other, 0.4))
    task = Task(origins_of(data, 0.4))
    one, two = ([p.text for p in prompts_of(task, each)] for each in (data, other))
    assert one == two


@given(st.lists(st.text("ab .!?\n", max_size=60), max_size=4), st.integers(0, 99))
def test_a_recombination_consists_of_whole_sentences_of_its_sources(sources, seed):
    text = recombined(sources, generator(seed, "test"))
    words = [
        part.split()
        for source in sources
        for start, end in pairwise(split_sentences(source))
        if (part := source[start:end]).split()
    ]
    assert sorted(text.split()) == sorted(word for sentence in words for word in sentence)


def test_origins_are_the_nodes_of_fewest_neighbours_that_training_sees(data):
    degree = data.training_graph.rows.ptr.diff()
    chosen = origins_of(data, 0.25)
    rest = [v for v in range(data.num_nodes) if v not in chosen.tolist()]
    assert len(chosen) == round(0.25 * data.num_nodes)
    assert max(degree[chosen]) <= min(degree[rest])
    inductive = ClientData(data.folder, torch.device("cpu"), inductive=True)
    seen = origins_of(inductive, 1.0)
    assert seen.tolist() == torch.nonzero(data.split != TEST).flatten().tolist()


# Runs: five rounds, of which the first trains the predictor; feedback after 2, 3 and 4.

FIVE = {"rounds": 5, "llm4fgl_ratio_of_nodes": 0.4}


def versions(finished, client):
    """Every generation of a client by its version."""
    made = {}
    for path in sorted(finished.store(client).folder.glob("llm4fgl-*.npz")):
        number = int(path.stem.rpartition("-")[2])
        made[number] = load_latest(finished.data(client), finished.result["run"], number)
    return made


@pytest.fixture(scope="module", params=BOTH)
def finished(request, run):
    return run(method=request.param, **FIVE)


def test_neighbours_change_the_training_and_nothing_else(finished):
    for client in range(3):
        found = versions(finished, client)
        assert [*found] == [0, 1, 2, 3], "R = 3"
        number = round(0.4 * finished.data(client).num_nodes)
        assert {len(made.texts) for made in found.values()} == {number}
        assert 0 < found[0].links["whole"].size(1) <= 5 * number
        anew = [
            sum(a != b for a, b in zip(last.texts, made.texts, strict=True))
            for last, made in pairwise(found.values())
        ]
        assert 0 < max(anew) <= round(0.3 * number)
    views = finished.result["test_accuracy_by_view"]
    assert views.keys() == {"deployed", "raw"}


def at_round(finished, round_, number=0):
    """A client of a run, the last model, and what it is told in a round."""
    config, state = finished.config, load_model(finished.folder)
    client = Client(finished.data(number), config)
    return client, state, RoundInfo(finished.result["run"], round_, model_fingerprint(state))


def test_a_model_carries_the_mean_confidence_of_all_clients(run):
    uploads = {}

    def app(message, context):
        reply = client_app.app(message, context)
        if message.metadata.message_type == keys.TRAIN and keys.ARRAYS in reply.content:
            arrays = reply.content.array_records[keys.ARRAYS].to_torch_state_dict()
            uploads.setdefault(config_of(message)[keys.ROUND], []).append(
                (arrays["feedback"], reply.content.metric_records["metrics"]["num-examples"])
            )
        return reply

    finished = run(app=app, method="llm4fgl-recombined", rounds=2, llm4fgl_ratio_of_nodes=0.4)
    assert all(not table.any() for table, _ in uploads[1])
    sums = torch.stack([table.double() * weight for table, weight in uploads[2]])
    used = [int(versions(finished, client)[0].used.sum()) for client in range(3)]
    assert sorted(sums[:, 1].sum(dim=1).tolist()) == pytest.approx(sorted(used))
    assert bool((sums[:, 0] <= sums[:, 1] + 1e-6).all())
    nodes = sum(finished.data(client).num_nodes for client in range(3))
    validated = models(finished, "evaluate", up=False)[0][0]
    mean = validated["feedback"].double()
    torch.testing.assert_close(mean, sums.sum(dim=0) / nodes, rtol=0, atol=1e-6)


def test_under_masks_it_is_the_same_model(run, finished):
    masked = run(method=finished.config.method, privacy_secure_aggregation=True, **FIVE)
    assert equal(load_model(finished.folder), load_model(masked.folder))


def test_a_client_that_was_away_during_a_reflection_makes_up_for_the_last(run):
    absent = {"app": unlike({1}, {3, 4}), "min_valid_replies": 2}
    finished = run(**absent, method="llm4fgl-recombined", **FIVE)
    assert [*versions(finished, 0)] == [0, 1, 2, 3] and [*versions(finished, 1)] == [0, 3]
    assert len(finished.result["history"]) == 5


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_a_version_that_was_lost_is_made_again(finished, damage):
    client, start, info = at_round(finished, 2, number=2)
    path = finished.store(2).folder / "llm4fgl-0.npz"
    kept = path.read_bytes()
    before, _ = client.train(start, info)
    first = dict(np.load(path))
    if damage == "lost":
        path.unlink()
    else:
        path.write_bytes(kept[: len(kept) // 2])
    client.train(start, info)
    again = dict(np.load(path))
    assert first["origins"].tolist() == again["origins"].tolist()
    assert first["texts"].tolist() == again["texts"].tolist()
    path.write_bytes(kept)
    after, _ = client.train(start, info)
    assert equal(before, after)


def test_duplicates_are_dropped(run, monkeypatch):
    def copying(task, data, config, run):
        written = writing.by_recombination(task, data, config, run)
        return [data.texts()[task.origins[0]], *written[1:]]

    monkeypatch.setattr(Llm4FglRecombined, "writer", staticmethod(copying))
    keys_ = {"method": "llm4fgl-recombined", "llm4fgl_duplicate_cosine": 0.98, **FIVE}
    finished = run(**keys_, llm4fgl_reflections=0)
    for client in range(3):
        ((number, made),) = versions(finished, client).items()
        assert number == 0 and made.texts[0] and not bool(made.used[0])
        assert int(made.links["whole"][0].max()) < int(made.used.sum())


def test_generated_text_never_leaves_the_client(run, monkeypatch):
    honest = writing.text_of
    monkeypatch.setattr(writing, "text_of", lambda value: f"{SENTINEL} {honest(value)}")
    finished = run(method="llm4fgl", **FIVE)
    from flwr.common.serde import message_to_proto

    for client in range(3):
        *_, last = versions(finished, client).values()
        texts = [text for text in last.texts if text]
        assert texts and all(text.startswith(SENTINEL) for text in texts)
    for message in finished.messages:
        data = message_to_proto(message).SerializeToString().lower()
        assert SENTINEL.lower().encode() not in data
    for path in finished.folder.rglob("*"):
        assert not path.is_file() or SENTINEL.lower().encode() not in path.read_bytes().lower()


def test_calls_are_planned_before_any_is_made(run, run_config):
    finished = run(method="llm4fgl", llm_seed=7, **FIVE)
    method = get_spec("llm4fgl").make_client()
    for client in range(3):
        data = finished.data(client)
        calls, tokens = method.planned_calls(data, finished.config)
        ledger = json.loads((finished.store(client).folder / "llm.json").read_text())
        number = round(0.4 * data.num_nodes)
        assert calls == number + 3 * round(0.3 * number)
        made = ledger["fresh_calls"] + ledger["cached_calls"] + ledger["capped_calls"]
        assert made == calls and ledger["fresh_calls"] > 0
        assert 0 < ledger["fresh_prompt"] + ledger["fresh_completion"] <= tokens
        control = get_spec("llm4fgl-recombined").make_client()
        assert control.planned_calls(data, finished.config) == (0, 0)
    assert method.planned_calls(finished.data(0), run_config(method="llm4fgl", rounds=1)) == (0, 0)
