"""What every method of the harness owes, as classes of tests.

A test module inherits from these classes and parametrises its class over `method`, so that the
methods of this package and those of others pass the same tests.
"""

import hashlib
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import plain

from dance_flwr.cli.run import start_run
from dance_flwr.config.plugins import METHODS, STRATEGIES
from dance_flwr.dance.nodes import node_budget
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import initial_model, open_client, shape_of
from dance_flwr.federation.declarations import disclosure
from dance_flwr.federation.server.replies import scales_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import AskingMethod, RoundInfo, Uplink
from dance_flwr.methods.label_reuse import LabelHalves
from dance_flwr.methods.personal_parts import Ditto, FedPer, Personalised
from dance_flwr.methods.server_side import ServerSide
from dance_flwr.runs.privacy_report import table
from dance_flwr.runs.result import load_model
from support.altered import records, unlike
from support.edge_cases import Draft
from support.graphs import TEXT_DIM, WORDS
from support.killing import same, states
from support.models import equal, models
from support.sites import dense

ODD = 5  # clients: without a class, a training label, an edge, validation nodes; with all of them


def contents(partition):
    """Return a digest of every file of the clients, except of runs, replies and what is derived."""
    files = [
        path
        for path in partition.rglob("*")
        if path.is_file() and not {"runs", "llm", "derived"} & {*path.relative_to(partition).parts}
    ]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="class")
def observed(request, method, run, run_config):
    """A run of the method with the keys `fast` of the class, and files before and after it."""
    folder = prepare(run_config(clients=3)).folder
    before = contents(folder)
    finished = run(method=method, **request.cls.fast)
    assert finished.partition == folder
    return SimpleNamespace(finished=finished, before=before, after=contents(folder))


def supervised(data):
    """2.25 K nodes with r = 0.25 of the small settings, at most all labelled ones."""
    budget = np.ceil(0.25 * data.num_nodes)
    return min(np.ceil(2.25 * budget), int((data.train_labels >= 0).sum()))


def finite(finished):
    """Whether all losses, and all weights of the kept model, are finite."""
    losses = [row["loss"] for row in finished.result["history"]]
    kept = load_model(finished.folder).values()
    return np.isfinite(losses).all() and all(torch.isfinite(tensor).all() for tensor in kept)


class Contract:
    """What every method owes."""

    fast = MappingProxyType(
        {"rounds": 2, "clients": 3, "local_epochs": 1, "dance_core_refresh_every": 0}
    )

    def check_condensed(self, method, config, data, state):
        """What a subclass asserts of the condensed nodes of a client."""

    def check_odd(self, method, finished):
        """What a subclass asserts of a run of the odd clients."""

    @pytest.fixture
    def odd(self, crafted):
        draft = Draft(ODD)
        draft.labels[:9] = [label % 2 for label in draft.labels[:9]]
        draft.replace(TRAIN, NO_SPLIT, 1)
        draft.pairs = [pair for pair in draft.pairs if pair[0] // 9 != 2]
        draft.replace(VAL, TEST, 3)
        return crafted("odd", *draft.parts())

    def test_its_client_and_server_sides_are_its_own(self, method):
        sides = [(type(get_spec(name).make_client()), get_spec(name).server) for name in METHODS]
        spec = get_spec(method)
        assert sides.count((type(spec.make_client()), spec.server)) == 1

    def test_its_card_says_whose_model_is_scored(self, method):
        spec = get_spec(method)
        assert issubclass(spec.server_type(), ServerSide)
        # The personal part of the latter stays at the client.
        personal = issubclass(spec.server_type(), Personalised)
        personal |= isinstance(spec.make_client(), FedPer | Ditto)
        assert spec.card.evaluation == ("personalised" if personal else "global")
        assert not spec.server or spec.uplink is Uplink.EACH
        assert not spec.server or method not in STRATEGIES, "a result names either in one place"

    def test_where_it_asks_a_language_model_it_says_how_often(self, method):
        """And has the keys of the language model, so that a run can bound what it asks."""
        spec = get_spec(method)
        if spec.card.needs_llm:
            assert isinstance(spec.make_client(), AskingMethod)
            assert LlmConfig in spec.sections

    def test_every_view_has_a_meaning(self, method):
        for view in (*get_spec(method).views, "deployed"):
            for split in ("val", "test"):
                assert "counts" in disclosure(keys.METRICS, keys.correct_of(split, view)).what

    def test_a_run_repeats_bit_by_bit(self, method, observed, run):
        same(run(method=method, **self.fast), observed.finished)

    def test_another_seed_gives_another_model(self, method, observed, run):
        """Each client uploads other arrays in the first round."""
        other = models(run(method=method, **{**self.fast, "rounds": 1}, seed=1))
        own = models(observed.finished)
        assert not any(equal(other[client][0], own[client][0]) for client in range(3))

    def test_inputs_stay_as_they_were(self, observed):
        assert len(observed.before) > 20 and observed.before == observed.after

    def test_tensors_of_the_client_stay_as_they_were(self, observed):
        config = observed.finished.settled
        client = open_client(observed.finished.partition / "client-1", config)
        data = client.data
        start = initial_model(shape_of(TEXT_DIM, len(WORDS), config), config).state_dict()
        held = (data.table.nodes, data.table.chunks, data.labels, data.train_labels, data.split)
        held += (*start.values(),)  # which the clients of a process share
        copies = [tensor.clone() for tensor in held]
        info = RoundInfo("another", 1, model_fingerprint(start))
        client.train(start, info)
        client.validate(start, info)
        assert all(tensor.equal(copy) for tensor, copy in zip(held, copies, strict=True))

    def test_the_budget_is_respected(self, method, observed):
        config, card = observed.finished.config, get_spec(method).card
        for client, state in enumerate(states(observed.finished)):
            if not card.condenses:
                assert not state
                continue
            condensed = state.get("condensed_labels", state.get("core"))
            if "core" in state:
                assert condensed.dtype == np.int64 and len(np.unique(condensed)) == len(condensed)
            data = observed.finished.data(client)
            assert len(condensed) == node_budget(data.num_nodes, config.condensation_ratio)
            self.check_condensed(method, config, data, state)

    def test_every_key_of_its_messages_is_explained(self, method, observed):
        record = observed.finished.result["messages"]
        every = [*table(record, keys.UP), *table(record, keys.DOWN)]
        single = [row for row in every if "unmasked" in row[2]]
        assert bool(single) == bool(get_spec(method).server and method != "local-only")

    def test_a_client_reports_the_nodes_it_trains_on(self, method, observed):
        finished, card = observed.finished, get_spec(method).card
        if not card.condenses:
            expected = {"nodes_per_round": 0.0}
            if card.rotates:
                sites = [finished.data(client) for client in range(finished.config.clients)]
                expected["supervised_per_round"] = sum(map(supervised, sites))
            assert finished.result["per_condensed_node"] == expected
            return
        stored = [state.get("condensed_labels", state.get("core")) for state in states(finished)]
        assert finished.result["per_condensed_node"]["nodes_per_round"] == sum(map(len, stored))

    def test_odd_clients_are_survived(self, method, run, odd):
        # Half of the methods with a backbone of means, half with one of attention.
        backbone = ("gcn", "gat")[[*METHODS].index(method) % 2]
        keys = {**self.fast, "clients": ODD, "data": odd, "partition": "random"}
        finished = run(**keys, method=method, backbone=backbone)
        assert (finished.data(1).train_labels < 0).all()
        assert not finished.data(2).graph.edges()[0].numel()
        assert np.isfinite([row["loss"] for row in finished.result["history"]]).all()
        for state in (state for sent in models(finished).values() for state in sent):
            assert all(torch.isfinite(tensor).all() for tensor in state.values())
        self.check_odd(method, finished)


class LabelReuseContract:
    """What a method owes that offers `label-reuse`."""

    fast = MappingProxyType({"rounds": 1, "local_epochs": 2})

    def test_a_run_learns_and_uploads_the_map_of_labels_and_repeats(self, method, run):
        finished = run(method=method, label_reuse=True, **self.fast)
        same(run(method=method, label_reuse=True, **self.fast), finished)
        uploads = models(finished).values()
        assert all(bool(state["label_weight"].any()) for sent in uploads for state in sent)
        assert finite(finished) and len(finished.replies("train")) == 3

    def test_without_it_no_model_has_the_map(self, method, run_config):
        config = run_config(method=method)
        model = initial_model(shape_of(TEXT_DIM, 3, config), config)
        assert not [name for name in model.state_dict() if "label" in name]


def refuses_label_reuse(run, run_config, method, folder):
    """Assert that a method refuses `label-reuse` before anything starts, and runs without it."""
    from dance_flwr.methods import check_method

    message = (
        rf"^label-reuse: expected .* \(fedavg-full, .*\), found '{method}'; set label-reuse = "
    )
    with pytest.raises(UserError, match=message) as caught:
        run(method=method, label_reuse=True, folder=folder)
    assert "\n" not in str(caught.value) and not folder.exists()
    check_method(run_config(method=method))


def check_batches_read_labels(run, method):
    """Assert that a method reads labels in sampled batches, too, and repeats."""
    keys = {"method": method, "label_reuse": True, "sampling_batch_nodes": 4}
    first, again = (run(**keys, **LabelReuseContract.fast) for _ in range(2))
    same(again, first)
    assert all(bool(sent[-1]["label_weight"].any()) for sent in models(first).values())


def check_loss_of_halves(trainer, model, data, config, covered, added=lambda probs, adjacency: 0.0):
    """Assert that the loss of an epoch in round 4 is that of the naive twin.

    Parameters
    ----------
    covered : [n] the labels that the loss covers, -1 elsewhere
    added : what the method adds to the loss of labelled nodes, of (predictions, dense adjacency)
    """
    shown, targets = LabelHalves(model, data.train_labels, config, 4, 0).split(covered)
    reads = torch.where(shown.sum(1) > 0, shown.argmax(1), -1).tolist()
    assert sum(label >= 0 for label in reads) >= 2
    adjacency = dense(data.graph)
    probs = plain.probabilities(model, data.features, adjacency, reads)
    asked = {v: label for v, label in enumerate(targets.tolist()) if label >= 0}
    expected = plain.mean_loss(probs, asked) + added(probs, adjacency)
    without = plain.mean_loss(plain.probabilities(model, data.features, adjacency), asked)
    report = trainer.train(model, data, config, RoundInfo("r", 4, ""))
    assert report.loss == pytest.approx(expected, rel=1e-4)
    assert report.loss != pytest.approx(without, rel=1e-3)


class SamplingContract:
    """What a method owes that trains on whole graphs and can sample."""

    def test_a_sampled_run_repeats_bit_by_bit_and_is_another_than_the_whole_one(self, method, run):
        keys = {"method": method, "rounds": 1, "clients": 3, "local_epochs": 2}
        sampled = {**keys, "sampling_batch_nodes": 4, "sampling_fan_out": 2}
        first = run(**sampled)
        same(run(**sampled), first)
        whole, own = load_model(run(**keys).folder), load_model(first.folder)
        assert not all(own[name].equal(whole[name]) for name in own)


UNSUPPORTED = {
    "masks": (
        {"privacy_secure_aggregation": True},
        r"privacy\.secure-aggregation: expected a method that needs sums only",
    ),
    "noise": (
        {"privacy_dp": "central"},
        r"privacy\.dp: expected a method that needs sums only",
    ),
    "strategy": (
        {"strategy": "fedadam"},
        r"strategy: expected the default, fedavg, since method '.*' brings its own",
    ),
}


class OwnServerContract:
    """What a method owes that brings a server side of its own."""

    @pytest.mark.parametrize("setting", UNSUPPORTED)
    def test_unsupported_settings_are_refused_before_anything_starts(
        self, method, run, tiny, tmp_path, setting
    ):
        (options, message), seen = UNSUPPORTED[setting], []
        with pytest.raises(UserError, match=message) as caught:
            run(method=method, folder=tmp_path / "run", on_message=seen.append, **options)
        assert "\n" not in str(caught.value) and not seen and not (tmp_path / "run").exists()
        values = {
            key.replace("privacy_", "privacy.").replace("_", "-"): value
            for key, value in options.items()
        }
        with pytest.raises(UserError, match=message):
            start_run({**values, "data": str(tiny), "method": method}, True)

    def test_it_runs_on_other_backbones_and_inductively(self, method, run):
        assert finite(run(method=method, rounds=1, backbone="gat", split_mode="inductive"))

    def test_it_uploads_in_int8(self, method, run):
        finished = run(method=method, rounds=2, upload_precision="int8")
        assert 0 <= finished.result["test_accuracy"] <= 1
        replies = finished.replies("train")
        assert len(replies) == 6
        for reply in replies:
            types = {tensor.dtype for tensor in messages.model_of(reply).values()}
            assert types == {torch.int8} and len(scales_of(reply))


def check_kept_models(run, method):
    """Assert that a client that a round does not ask keeps its last model."""
    finished = run(method=method, clients=3, client_fraction=0.67, rounds=4, evaluate_every=1)
    rows = finished.result["history"]
    checked = models(finished, "evaluate", up=False)
    trained = [[c for c, up in row["bytes_up"].items() if up] for row in rows]
    assert all(len(row) == 2 for row in trained) and len({tuple(row) for row in trained}) > 1
    for client in range(3):
        for round_ in range(1, 4):
            stored = equal(checked[client][round_], checked[client][round_ - 1])
            assert stored == (str(client) not in trained[round_])


def check_skipped_upload(run, method, record, personalised=True):
    """Assert that a run goes on where client 1 uploads NaN in round 2."""

    def broken(reply):
        state = state_of(reply.content[record])
        worse = {name: torch.full_like(part, torch.nan) for name, part in state.items()}
        return records(**{record: arrays_of(worse)})(reply)

    app = unlike({1}, {2}, broken)
    finished = run(method=method, app=app, min_valid_replies=2, evaluate_every=1)
    (client, reason), *others = finished.result["history"][1]["absent"].items()
    assert client == "1" and "expected finite numbers" in reason and not others
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())
    if personalised:
        sent = models(finished, up=False)  # round 3 starts from what round 2 has made
        assert equal(sent[1][2], sent[1][1]) and not equal(sent[0][2], sent[0][1])
