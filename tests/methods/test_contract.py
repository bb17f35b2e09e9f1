"""The contract of every registered method: one suite, run for each name in METHODS."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.client import training_quotas
from support.graphs import TEXT_DIM, WORDS, sentences
from support.killing import Killed, asks, same, states

from dance_flwr.config.options import choices_of
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import flat_fields
from dance_flwr.dance.nodes import node_budget
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import initial_model, open_client, shape_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import AskingMethod, RoundInfo, Uplink
from dance_flwr.runs.privacy_report import table

FAST = {
    "rounds": 2,
    "clients": 3,
    "local_epochs": 1,
    "condense_steps": 3,
    "dance_core_refresh_every": 0,
}
# Trains on K real training nodes, or as many synthetic ones; DANCE's core also holds nodes without
# a label.
SHARED_BUDGET = [name for name in METHODS if get_spec(name).card.condenses and name != "dance"]


@dataclass(frozen=True)
class Observed:
    """A run, and the files of its clients before and after it."""

    finished: object
    before: dict
    after: dict


def contents(partition):
    """Return a digest of every file of the clients, except of runs, replies and what is derived."""
    files = [
        path
        for path in partition.rglob("*")
        if path.is_file() and not {"runs", "llm", "derived"} & {*path.relative_to(partition).parts}
    ]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module", params=METHODS)
def observed(request, run, run_config):
    folder = prepare(run_config(clients=3)).folder
    before = contents(folder)
    finished = run(method=request.param, **FAST)
    assert finished.partition == folder
    return Observed(finished, before, contents(folder))


def test_every_method_is_a_choice_of_the_configuration():
    item, _ = flat_fields()["method"]
    assert choices_of(item) == tuple(METHODS)
    specs = map(get_spec, METHODS)
    assert len({(type(spec.make_client()), spec.server) for spec in specs}) == len(METHODS)


def test_a_method_that_asks_a_language_model_says_how_often():
    """And has the keys of the language model, so that a run can bound what it asks."""
    for name in (name for name in METHODS if get_spec(name).card.needs_llm):
        assert isinstance(get_spec(name).make_client(), AskingMethod), name
        assert LlmConfig in get_spec(name).sections, name


def test_a_run_repeats_bit_by_bit(observed, run):
    same(run(method=observed.finished.config.method, **FAST), observed.finished)


def test_a_killed_run_ends_as_if_it_had_not_been(observed, run, tmp_path):
    """Killed in its first round, and again in its second one."""
    keys = {"method": observed.finished.config.method, **FAST}
    if keys["method"] not in SHARED_BUDGET:
        pytest.skip("keeps no training nodes")
    for round_ in (1, 2):
        with pytest.raises(Killed):
            run(folder=tmp_path, on_message=asks("train", round_, 2), resume=round_ > 1, **keys)
    same(observed.finished, run(folder=tmp_path, resume=True, **keys))


def test_another_seed_gives_another_model(observed, run):
    """Each client uploads other arrays in the first round."""
    method = observed.finished.config.method
    other = run(method=method, **{**FAST, "rounds": 1}, seed=1).replies("train")
    for reply, own in zip(other, observed.finished.replies("train")[:3], strict=True):
        left, right = (
            r.content.array_records["arrays"].to_torch_state_dict() for r in (reply, own)
        )
        assert not all(left[name].equal(right[name]) for name in left)


def test_inputs_stay_as_they_were(observed):
    assert len(observed.before) > 20 and observed.before == observed.after


def test_tensors_of_the_client_stay_as_they_were(observed):
    config = observed.finished.settled
    client = open_client(observed.finished.partition / "client-1", config)
    data, start = (
        client.data,
        initial_model(shape_of(TEXT_DIM, len(WORDS), config), config).state_dict(),
    )
    held = (data.table.nodes, data.table.chunks, data.labels, data.train_labels, data.split)
    copies = [tensor.clone() for tensor in held]
    info = RoundInfo(observed.finished.result["run"], 1, model_fingerprint(start))
    client.train(start, info)
    client.validate(start, info)
    assert all(tensor.equal(copy) for tensor, copy in zip(held, copies, strict=True))


def test_the_budget_is_respected(observed):
    config, card = observed.finished.config, get_spec(observed.finished.config.method).card
    for client, state in enumerate(states(observed.finished)):
        data = observed.finished.data(client)
        if not card.condenses:
            assert not state
            continue
        labels = state.get("condensed_labels", None)
        if labels is None:
            assert state["core"].dtype == np.int64 and len(np.unique(state["core"])) == len(
                state["core"]
            )
            labels = data.train_labels[torch.tensor(state["core"])].numpy()
        quotas = training_quotas(
            data.train_labels, data.num_nodes, len(WORDS), config.condensation_ratio
        )
        assert (
            len(labels)
            == int(quotas.sum())
            == node_budget(data.num_nodes, config.condensation_ratio)
        )
        if config.method in SHARED_BUDGET:
            assert np.bincount(labels, minlength=len(WORDS)).tolist() == quotas.tolist()


def test_the_uplink_is_what_it_says(observed, reference):
    """A method of sums uploads the model and the metrics of the reference, and nothing else."""
    config = observed.finished.config
    method = get_spec(config.method)
    full = reference(**{**FAST, "rounds": 1}, method="fedavg-full").replies("train")[0]
    model = initial_model(shape_of(TEXT_DIM, len(WORDS), config), config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes.keys() == dict(model.named_parameters()).keys()
    replies = observed.finished.replies("train")
    assert len(replies) == 6
    for reply in replies:
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert {name: tuple(tensor.shape) for name, tensor in arrays.items()} == shapes
        assert {tensor.dtype for tensor in arrays.values()} == {torch.float32}
        if method.uplink is Uplink.SUM:
            assert reply.content.keys() == full.content.keys()
            metrics = (r.content.metric_records["metrics"].keys() for r in (reply, full))
            assert next(metrics) == next(metrics)


def test_every_key_of_its_messages_is_explained(observed):
    config = observed.finished.config
    single = [row for row in table(observed.finished.result) if "unmasked" in row[4]]
    assert bool(single) == bool(get_spec(config.method).server and config.method != "local-only")


def test_a_client_reports_the_nodes_it_trains_on(observed):
    config, card = observed.finished.config, get_spec(observed.finished.config.method).card
    if not card.condenses:
        expected = {"nodes_per_round": 0.0}
        if card.rotates:
            sites = [observed.finished.data(client) for client in range(config.clients)]
            expected["supervised_per_round"] = sum(map(supervised, sites))
        assert observed.finished.result["per_condensed_node"] == expected
        return
    stored = [
        state.get("condensed_labels", state.get("core")) for state in states(observed.finished)
    ]
    assert observed.finished.result["per_condensed_node"]["nodes_per_round"] == sum(
        map(len, stored)
    )


def supervised(data):
    """2.25 K nodes with r = 0.25 of the small settings, at most all labelled ones."""
    budget = np.ceil(0.25 * data.num_nodes)
    return min(np.ceil(2.25 * budget), int((data.train_labels >= 0).sum()))


# Clients of nine nodes: one lacks a class, one has no training label, one has no edge, one has
# nothing odd.
ODD = (
    "no class 2",
    "no labelled node",
    "no edge",
    "one node per class in training, none to validate on",
    "whole",
)


@pytest.fixture
def odd(crafted):
    ids, labels, split, pairs = [], [], [], []
    for client in range(len(ODD)):
        ids += [f"c{client}-{i}" for i in range(9)]
        labels += [i % 3 for i in range(9)]
        split += [(TRAIN, VAL, TEST)[i // 3] for i in range(9)]
        pairs += [(client * 9 + i, client * 9 + (i + 1) % 9) for i in range(9) if client != 2]
    labels[:9] = [label % 2 for label in labels[:9]]
    split[9:18] = [NO_SPLIT if code == TRAIN else code for code in split[9:18]]
    split[27:36] = [TEST if code == VAL else code for code in split[27:36]]
    rng = np.random.default_rng(3)
    return crafted(
        "odd",
        ids,
        [sentences(rng, WORDS[sorted(WORDS)[c]], 2) for c in labels],
        labels,
        pairs,
        split,
    )


# Every method, and a backbone of means and one of attention with half of them each.
@pytest.mark.parametrize(
    ("method", "backbone"), [(name, ("gcn", "gat")[i % 2]) for i, name in enumerate(METHODS)]
)
def test_odd_clients_are_survived(run, odd, method, backbone):
    finished = run(
        **{**FAST, "clients": len(ODD)},
        data=odd,
        partition="random",
        method=method,
        backbone=backbone,
    )
    assert (finished.data(1).train_labels < 0).all() and not finished.data(2).graph.edges()[
        0
    ].numel()
    assert np.isfinite([row["loss"] for row in finished.result["history"]]).all()
    for reply in finished.replies("train"):
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert all(torch.isfinite(tensor).all() for tensor in arrays.values())
    if method in SHARED_BUDGET:
        stored = [
            len(state.get("condensed_labels", state.get("core"))) for state in states(finished)
        ]
        assert stored == [3, 0, 3, 3, 3]
