"""A run in this process: its files, its repeatability, and every setting."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import EVERY_ROUND
from support.killing import saved

from dance_flwr.config.plugins import STRATEGIES
from dance_flwr.config.tree import flatten, parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.state import CONDENSATION, STATIC
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.wire.messages import metrics_of
from dance_flwr.fingerprint import model_fingerprint, provenance
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import accuracy, count
from dance_flwr.runs.result import load_model

PLAIN = {"method": "fedavg-full"}
TOP = """
    schema test_accuracy val_accuracy test_macro_f1 best_round test_accuracy_by_view share_of_views
    clients per_condensed_node seconds_total seconds_by_phase seconds_per_round model_fingerprint
    provenance config versions run strategy method seed partition_dir nodes_per_client devices
    encoder_tokens history privacy test_nodes val_nodes messages evaluation data_sha256
    evidence_sha256 tokens class_names test_by_class seconds_by_client reading calibration
    test_balanced_accuracy test_worst_client test_calibration_error
"""
ROW = """
    round loss val_accuracy val_macro_f1 views seconds train_seconds round_seconds counts
    bytes_down bytes_up epsilon absent skipped
"""
VERSIONS = """
    dance-flwr python flwr torch torch-geometric sentence-transformers entmax scikit-learn
"""


def validations(finished):
    return [row["val_accuracy"] for row in finished.result["history"]]


def packs_written(finished, client=0):
    return [path.stem for path in finished.store(client).all_packs()]


def state(finished, client=0):
    return vars(finished.store(client).load(torch.device("cpu")))


def test_result_has_exactly_the_schema(dance):
    result = dance.result
    assert result.keys() == {*TOP.split()}
    assert all(row.keys() == {*ROW.split()} for row in result["history"])
    assert result["versions"].keys() == {*VERSIONS.split()} and all(result["versions"].values())
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1"):
        assert 0 <= result[name] <= 1
    assert result["provenance"] == provenance()
    assert flatten(parse(result["config"])) == result["config"] == flatten(dance.config)
    assert sum(result["nodes_per_client"]) == 72
    assert [client["client"] for client in result["clients"]] == [0, 1, 2]


def test_history_has_one_full_row_per_round(dance):
    history = dance.result["history"]
    assert [row["round"] for row in history] == [1, 2, 3]
    model_bytes = sum(tensor.numel() * 4 for tensor in load_model(dance.folder).values())
    for row in history:
        assert 0 <= row["val_accuracy"] <= 1 and np.isfinite(row["loss"])
        assert row["seconds"].keys() == {"forward", "nodes", "text", "topology", "packs", "train"}
        assert 0 < sum(row["seconds"].values()) <= row["round_seconds"]
        assert row["bytes_down"].keys() == row["bytes_up"].keys() == {"0", "1", "2"}
        # Once, as the next training validates the model; the last one is validated by itself.
        down = (1 + (row["round"] == 3)) * model_bytes
        for sent, least in (("bytes_up", model_bytes), ("bytes_down", down)):
            assert all(least <= size < 1.1 * least + 20_000 for size in row[sent].values())
    lines = (dance.folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history


def test_best_round_is_the_earliest_with_the_best_validation(run):
    finished = run(rounds=6, learning_rate=0.05)
    seen = validations(finished)
    assert len(set(seen)) > 1, "a flat history would prove nothing"
    assert finished.result["best_round"] == 1 + int(np.argmax(seen))
    assert finished.result["val_accuracy"] == pytest.approx(max(seen))


def test_test_nodes_are_read_once_and_last(dance):
    with_test = [
        i
        for i, m in enumerate(dance.messages)
        if m.metadata.src_node_id and "test" in str(m.content.metric_records)
    ]
    # The final model to each of three clients, and their answers; then the hashes of evidence.
    assert with_test == [len(dance.messages) - back for back in (11, 9, 7)]
    finals = [i for i, m in enumerate(dance.messages) if "final" in str(m.content.config_records)]
    assert finals == [len(dance.messages) - back for back in (12, 10, 8)]


def test_saved_model_reproduces_the_reported_accuracies(dance):
    state_dict = load_model(dance.folder)
    assert model_fingerprint(state_dict) == dance.result["model_fingerprint"]
    hits = {TEST: [0, 0], VAL: [0, 0]}
    for number in range(3):
        client = Client(dance.data(number), dance.config)
        client.load(state_dict)
        info = RoundInfo("", 1, "", final=True)
        for code, total in hits.items():
            nodes = torch.nonzero((client.data.split == code) & (client.data.labels >= 0)).flatten()
            counts = count(client.predict(info, nodes), client.data.labels[nodes])
            total[0] += counts.correct["deployed"]
            total[1] += counts.total
    assert accuracy(*hits[TEST]) == dance.result["test_accuracy"]
    assert accuracy(*hits[VAL]) == dance.result["val_accuracy"]


def test_same_seed_repeats_and_another_differs(run, dance):
    again, other = run(**EVERY_ROUND), run(**EVERY_ROUND, seed=1)
    for name in ("loss", "val_accuracy", "val_macro_f1"):
        left, right = (
            [row[name] for row in finished.result["history"]] for finished in (dance, again)
        )
        assert left == pytest.approx(right, abs=1e-6)
    assert again.result["model_fingerprint"] == dance.result["model_fingerprint"]
    assert other.result["model_fingerprint"] != dance.result["model_fingerprint"]


def info(name, model):
    """Round 1 of a run of this name."""
    return RoundInfo(name, 1, model_fingerprint(model))


@pytest.mark.parametrize(
    ("keys", "labelled_first"),
    [
        pytest.param({"dropout": 0.5}, True, id="dropout"),
        pytest.param({"dropout": 0.0, "dance.confidence": 0.0}, False, id="prototypes"),
    ],
)
def test_the_seed_decides_every_draw_of_a_client(dance, keys, labelled_first):
    model = load_model(dance.folder)

    def trained(seed, name):
        config = parse(flatten(dance.config) | keys | {"seed": seed})
        settings = replace(DanceConfig.of(config), labelled_first=labelled_first)
        client = Client(dance.data(0), replace(config, sections=(settings, LlmConfig.of(config))))
        return model_fingerprint(
            client.train(model, info(f"{name}-{seed}-{keys['dropout']}", model))[0]
        )

    prints = [trained(seed, "first") for seed in range(4)]
    assert len(set(prints)) > 1 and [trained(seed, "again") for seed in range(4)] == prints


@pytest.mark.parametrize(
    "keys", [{}, {"dance.text-refresh-every": 2}, {"dance.core-refresh-every": 1}]
)
def test_a_round_that_is_asked_twice_is_answered_twice(dance, keys):
    """A reply may be lost after the client has saved its state."""
    client = Client(dance.data(0), parse(flatten(dance.config) | keys))
    name, sent = f"twice-{len(str(keys))}", load_model(dance.folder)
    for _ in range(2):
        state, report = client.train(sent, info(name, sent))
        assert np.isfinite(report.loss) and all(
            torch.isfinite(tensor).all() for tensor in state.values()
        )


def test_every_strategy_runs_and_is_another_computation(run):
    prints = set()
    for strategy in STRATEGIES.builtin:
        rate = 0.01 if strategy != "fedavgm" else 1.0
        # Of five clients, as a trimmed mean of three is their median or their mean.
        keys = {"strategy": strategy, "clients": 5, "rounds": 2, **PLAIN}
        finished = run(server_learning_rate=rate, **keys)
        assert finished.result["strategy"] == strategy
        prints.add(finished.result["model_fingerprint"])
        for tensor in load_model(finished.folder).values():
            assert torch.isfinite(tensor).all() and tensor.dtype == torch.float32
        first, second = (row["bytes_down"]["0"] for row in finished.result["history"])
        # An optimiser's numbers make no model larger on the wire; the last round sends it twice.
        assert second == pytest.approx(2 * first, rel=0.01), strategy
    assert len(prints) == len(STRATEGIES.builtin)


@pytest.mark.parametrize(
    ("core", "text", "rounds", "refreshed"),
    [
        pytest.param(0, 0, 3, [1], id="static"),
        pytest.param(1, 0, 3, [1, 2, 3], id="core-only"),
        pytest.param(0, 1, 3, [1, 2, 3], id="text-only"),
        pytest.param(3, 3, 4, [1, 4], id="every-3"),
        pytest.param(2, 3, 5, [1, 3, 4, 5], id="core-2-text-3"),
    ],
)
def test_core_and_text_refresh_when_due(run, core, text, rounds, refreshed):
    """Without a coverage penalty, so that a core rests until the next condensation."""
    finished = run(
        dance_core_refresh_every=core,
        dance_text_refresh_every=text,
        dance_coverage_penalty=0.0,
        rounds=rounds,
    )
    for client in range(3):
        assert packs_written(finished, client) == [*(f"round-{r:05d}" for r in refreshed), "final"]
        kept = state(finished, client)
        cores = [r for r in range(1, rounds + 1) if (r - 1) % core == 0] if core else [1]
        texts = [r for r in range(1, rounds + 1) if (r - 1) % text == 0] if text else [1]
        selections = [*texts, *(cores if text else [])]  # a new queue has no evidence yet
        assert (kept["core_round"], kept["text_round"]) == (cores[-1], max(selections))
        assert kept["turn"] == rounds - cores[-1] + 1
        store = finished.store(client)
        with np.load(store.latest(CONDENSATION)) as condensation:
            assert condensation["times_selected"].sum() == (cores[-1] - 1) * len(kept["core"])
        # Of all nodes, where it is never selected again.
        assert (store.latest(STATIC) is not None) == (text == 0)
    counted = [
        row["round"] for row in finished.result["history"] if row["counts"]["condensed-nodes"]
    ]
    assert counted == refreshed


def test_static_core_stays_and_moving_core_moves(run):
    from dance_flwr.evidence.pack import Packs

    def cores(**keys):
        finished = run(rounds=2, dance_text_refresh_every=1, **keys)
        return [Packs.load(finished.store(0).round_path(r)).nodes.tolist() for r in (1, 2)]

    fixed = cores(dance_core_refresh_every=0)
    moving = cores(dance_core_refresh_every=1)
    in_turn = cores(dance_core_refresh_every=10, condensation_ratio=0.1)
    assert fixed[0] == fixed[1] and moving[0] != moving[1] and in_turn[0] != in_turn[1]


def test_frozen_text_only_uses_what_was_selected_in_round_1(run):
    from dance_flwr.evidence.pack import Packs

    finished = run(dance_core_refresh_every=1, dance_text_refresh_every=0)
    store = finished.store(0)
    static = saved(store.latest(STATIC))
    for round_ in (1, 2, 3):
        packs = Packs.load(store.round_path(round_))
        for row, node in enumerate(packs.nodes):
            chosen = packs.chunks[packs.chunk_ptr[row] : packs.chunk_ptr[row + 1]]
            first, last = static["chunks_ptr"][node : node + 2]
            frozen = static["chunks_index"][first:last]
            assert set(chosen) <= set(frozen)


def test_only_the_final_packs_are_kept_on_request(run):
    assert packs_written(run(rounds=2, dance_evidence_keep="final")) == ["final"]


@pytest.mark.parametrize("weight", ["nodes", "labelled"])
def test_weight_of_a_client_is_what_was_asked_for(run, weight):
    finished = run(aggregate_weight=weight, rounds=1, **PLAIN)
    sites = [finished.data(client) for client in range(3)]
    held = {
        "nodes": [data.num_nodes for data in sites],
        "labelled": [int((data.train_labels >= 0).sum()) for data in sites],
    }
    replies = sorted(finished.replies("train"), key=lambda reply: reply.metadata.src_node_id)
    assert held["nodes"] != held["labelled"]
    assert [metrics_of(reply.content)["num-examples"] for reply in replies] == held[weight]


def test_aggregate_is_the_weighted_mean_of_the_uploads(run):
    finished = run(rounds=1, **PLAIN)
    replies = finished.replies("train")
    weights = [metrics_of(reply.content)["num-examples"] for reply in replies]
    states = [reply.content.array_records["arrays"].to_torch_state_dict() for reply in replies]
    for name, tensor in load_model(finished.folder).items():
        mean = sum(w * s[name].double() for w, s in zip(weights, states, strict=True)) / sum(
            weights
        )
        torch.testing.assert_close(tensor.double(), mean, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("method", ["dance", "fedavg-full"])
def test_learns_far_above_chance(run, method):
    finished = run(method=method, rounds=10, local_epochs=3, learning_rate=0.02)
    assert finished.result["test_accuracy"] >= 0.7  # chance is 0.33
