"""Rivals owe what every method owes; see `support.contract`."""

from importlib.metadata import entry_points

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.client import training_quotas
from dance_flwr_rivals.self_training.client import SelfTraining
from oracles import plain
from rival_support.condensed import uploads
from support.contract import (
    Contract,
    LabelReuseContract,
    OwnServerContract,
    SamplingContract,
    check_batches_read_labels,
    check_kept_models,
    check_loss_of_halves,
    check_skipped_upload,
    refuses_label_reuse,
)
from support.contract import observed as observed
from support.graphs import TEXT_DIM, WORDS
from support.killing import Killed, asks, same, states
from support.models import equal
from support.sites import toy_model, toy_site

from dance_flwr.api import evaluation
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.plugins import METHODS, RIVALS
from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.wire.keys import STATISTICS
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.runs.result import load_model

CONDENSING = [name for name in RIVALS if get_spec(name).card.condenses]
KEEPING = [*CONDENSING, "llm4fgl", "llm4fgl-recombined"]
SAMPLED = [name for name in RIVALS if SamplingConfig in get_spec(name).sections]
OFFERED = [
    *("self-training", "fedgta", "fedtad", "fedsage", "llm4rgnn", "llm4rgnn-cosine", "llata"),
    *("llata-cosine", "llata-propagation", "llm4fgl", "llm4fgl-recombined"),
]


def test_the_product_knows_the_names_of_all_rivals():
    """From them it tells which package brings a method that is not installed."""
    points = entry_points(group=METHODS.group)
    assert {point.name for point in points if point.dist.name == "dance-flwr-rivals"} == {*RIVALS}


@pytest.mark.parametrize("method", RIVALS, scope="class")
class TestContract(Contract):
    """Of rivals, which condense to real training nodes or to as many synthetic ones."""

    fast = Contract.fast | {"condense_steps": 3}

    def check_condensed(self, method, config, data, state):
        labels = state.get("condensed_labels", None)
        if labels is None:
            labels = data.train_labels[torch.tensor(state["core"])].numpy()
        quotas = training_quotas(
            data.train_labels, data.num_nodes, len(WORDS), config.condensation_ratio
        )
        assert np.bincount(labels, minlength=len(WORDS)).tolist() == quotas.tolist()

    def check_odd(self, method, finished):
        if method in CONDENSING:
            kept = [state.get("condensed_labels", state.get("core")) for state in states(finished)]
            assert [len(nodes) for nodes in kept] == [3, 0, 3, 3, 3]

    def test_a_killed_run_ends_as_if_it_had_not_been(self, method, observed, run, tmp_path):
        """Killed in its first round, and again in its second one."""
        keys = {"method": method, **self.fast}
        if method not in KEEPING:
            pytest.skip("keeps nothing but its last model")
        for round_ in (1, 2):
            kill = asks("train", round_, 2)
            with pytest.raises(Killed):
                run(folder=tmp_path, on_message=kill, resume=round_ > 1, **keys)
        same(observed.finished, run(folder=tmp_path, resume=True, **keys))


def test_the_rivals_that_offer_label_reuse():
    assert [name for name in RIVALS if get_spec(name).label_reuse] == OFFERED


@pytest.mark.parametrize("method", OFFERED)
class TestLabelReuse(LabelReuseContract):
    """Of rivals."""


@pytest.mark.parametrize("method", [name for name in RIVALS if name not in OFFERED])
def test_others_refuse_label_reuse_before_anything_starts(run, tmp_path, run_config, method):
    refuses_label_reuse(run, run_config, method, tmp_path / "run")


def test_batches_of_fedsage_read_labels_too(run):
    check_batches_read_labels(run, "fedsage")


def test_the_loss_of_self_training_with_labels_is_its_naive_twin():
    n = 12
    split = [TRAIN if v % 2 == 0 else VAL if v % 4 == 1 else TEST for v in range(n)]
    edges = [(v, (v + 1) % n) for v in range(n)] + [(0, 5), (2, 9)]
    data = toy_site([v % 3 for v in range(n)], split, edges)
    values = {"method": "self-training", "dropout": 0.0, "local-epochs": 1, "label-reuse": True}
    start = {"self-training.start-round": 1, "self-training.confidence": 0.0}
    config, model = parse({**values, **start, "rounds": 9}), toy_model(reads_labels=True)

    def confident(probs, adjacency):  # predicted with every training label shown
        shown = data.train_labels.tolist()
        seen = plain.probabilities(model, data.features, adjacency, shown)
        return plain.mean_loss(probs, plain.confident(seen, range(1, n, 2), 0.0))

    check_loss_of_halves(SelfTraining(), model, data, config, data.train_labels, confident)


def test_the_rivals_of_whole_graphs_can_sample():
    own = ["fedgta", "fedsage", "llm4rgnn", "llm4rgnn-cosine", "llata", "llata-cosine"]
    assert [*own, "llata-propagation", "llm4fgl", "llm4fgl-recombined"] == SAMPLED


@pytest.mark.parametrize("method", SAMPLED)
class TestSampling(SamplingContract):
    """Of rivals."""


@pytest.mark.parametrize("method", ["fedgta", "fedtad", "fedgvd", "fedsage"])
class TestOwnServer(OwnServerContract):
    """Of rivals."""


def test_a_client_that_fedgta_does_not_ask_keeps_its_last_model(run):
    check_kept_models(run, "fedgta")


@pytest.mark.parametrize(
    ("method", "record"), [("fedgvd", "arrays"), ("fedgta", STATISTICS), ("fedtad", STATISTICS)]
)
def test_an_unusable_upload_is_skipped(run, method, record):
    check_skipped_upload(run, method, record, personalised=method != "fedtad")


@pytest.mark.parametrize("method", ["fedsage", "llata"])
def test_rivals_that_cannot_train_without_a_server_are_not_tuned(run, method):
    with pytest.raises(UserError, match="expected 'off' or 'mix' for method"):
        run(method=method, personal="tune")


def test_personal_models_predict_again_what_each_client_counted(run):
    finished = run(method="fedgta", rounds=1, smoothing="correct-and-smooth")
    correct = np.zeros(len(finished.result["class_names"]), int)
    for tested in evaluation.tested_clients(finished.folder, finished.result):
        right = tested.labels[tested.predicted["deployed"] == tested.labels]
        correct += np.bincount(right, minlength=len(correct))
    assert correct.tolist() == finished.result["test_by_class"]["correct"]


# (method, settings that leave nothing of it, the method that is left, keys of all three runs)
LIMITS = [
    *((name, {"llm4fgl_ratio_of_nodes": 0.0}, "fedavg-full", {}) for name in KEEPING[-2:]),
    (
        *("fedsage", {"fedsage_max_generated_per_node": 0}, "fedavg-full"),
        {"fedsage_hidden_ratio_of_val_nodes": 1.0, "fedsage_steps": 30},
    ),
    ("fedtad", {"fedtad_steps": 0}, "fedavg-full", {}),
    ("fedgta", {"fedgta_epsilon": 1.0}, "local-only", {}),
    *(
        ("self-training", {f"self-training.{key}": value}, "fedavg-full", {})
        for key, value in (("start-round", 3), ("weight", 0.0), ("confidence", 1.0))
    ),
    (
        *("fedc4", {"fedc4_threshold": 1.0, "fedc4_rebuild": False}),
        *("gcond", {"condense_steps": 4, "seed": 2}),
    ),
    (
        *("fedgvd", {"fedgvd_condensed_weight": 0.0, "fedgvd_teaching_weight": 0.0}),
        *("local-only", {}),
    ),
    *(
        (
            method,
            {"llm4rgnn_beta": 1, "llm4rgnn_added_per_node": 0},
            "fedavg-full",
            {"llm4rgnn_beta": 6, **keys},
        )
        for method, keys in (
            *((name, {"label_reuse": True}) for name in ("llm4rgnn", "llm4rgnn-cosine")),
            ("llm4rgnn", {"split_mode": "inductive"}),
            ("llm4rgnn", {"sampling_batch_nodes": 4, "sampling_fan_out": 2}),
            ("llm4rgnn-cosine", {"backbone": "sage", "edge_gates": "agreement"}),
        )
    ),
    *(
        (
            method,
            dict.fromkeys(
                [
                    *("llata_moved_ratio_of_nodes", "llata_added_ratio_of_edges"),
                    "llata_dropped_ratio_of_edges",
                ],
                0.0,
            ),
            "fedavg-full",
            {"split_mode": mode},
        )
        for method in ("llata", "llata-cosine", "llata-propagation")
        for mode in ("transductive", "inductive")
    ),
]


@pytest.mark.parametrize(("method", "limit", "left", "keys"), LIMITS)
def test_at_its_limit_it_is_another_method_bit_by_bit(run, reference, method, limit, left, keys):
    keys = {"rounds": 2, "local_epochs": 2, **keys}
    other, limited = reference(method=left, **keys), run(method=method, **{**keys, **limit})
    assert equal(load_model(other.folder), load_model(limited.folder))
    assert set(limited.result["test_accuracy_by_view"].values()) == {other.result["test_accuracy"]}
    own = run(method=method, **keys)
    assert not equal(load_model(own.folder), load_model(limited.folder))


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("gcond", {"rounds": 12, "condense_steps": 60, "local_epochs": 3}),
        ("fedgm", {"condense_steps": 60, "fedgm_train_steps": 60, "fedgm_train_every": 10}),
        (
            "sfgc",
            {
                "rounds": 12,
                "sfgc_steps": 30,
                "sfgc_span": 20,
                "sfgc_unroll": 10,
                "sfgc_feature_rate": 0.03,
            },
        ),
    ],
)
def test_networks_learn_from_condensed_graphs(run, method, keys):
    keys = {"rounds": 6, "local_epochs": 3, **keys}
    assert run(method=method, dropout=0.2, **keys).result["test_accuracy"] > 0.6


# Statistics of every round, of methods whose clients upload a condensed graph once.
UPLOADS = {"fedgm": {"weights", "biases", "counts"}, "fedc4": {"embeddings"}, "fedgvd": set()}


@pytest.mark.parametrize("method", UPLOADS)
def test_a_condensed_graph_is_uploaded_once_and_is_that_of_the_client(run, method):
    finished = run(method=method, condense_steps=4, rounds=3)
    for client, own in uploads(finished).items():
        assert own[0].keys() == UPLOADS[method] | {"features", "adjacency", "labels"}
        assert all(later.keys() == UPLOADS[method] for later in own[1:])
        kept = states(finished)[client]
        for name, stored in (("features",) * 2, ("labels", "condensed_labels")):
            assert np.array_equal(own[0][name].numpy(), kept[stored])


SEEING = ["self-training", "gcond", "sfgc", "fedtad", "fedgvd", "fedsage"]
SEEING += ["llm4rgnn", "llm4rgnn-cosine", "llata", "llata-cosine", "llm4fgl-recombined"]


@pytest.mark.parametrize("method", SEEING)
def test_training_in_inductive_mode_depends_on_no_text_of_a_test_node(run_config, method):
    """Two trainings of a client, of which the second finds other texts at the test nodes."""
    keys = {"condense_steps": 4, "rounds": 3, "llm4rgnn_gamma": 0.1, "llm4rgnn_beta": 3}
    keys |= {"fedsage_hidden_ratio_of_val_nodes": 1.0, "fedsage_steps": 30}
    config = run_config(method=method, split_mode="inductive", **keys)
    folder, found = prepare(config).folder / "client-1", []
    for noise in (0.0, 1.0):
        data = ClientData(folder, torch.device("cpu"), inductive=True)
        data.table.nodes[data.split == TEST] += noise * torch.rand(TEXT_DIM)
        client = Client(data, config)
        start = initial_model(shape_of(TEXT_DIM, len(WORDS), config), config).state_dict()
        for round_ in (1, 2):
            info = RoundInfo(f"unseen-{method}-{noise}", round_, model_fingerprint(start))
            upload, _ = client.train(start, info)
        found.append({name: tensor.clone() for name, tensor in upload.items()})
    assert equal(*found)
