"""Personalised models: who is sent which, what is kept and refused; training in isolation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from support.edge_cases import CASES, Draft
from support.graphs import TEXT_DIM
from support.models import client_part, equal, models

import client_app
from dance_flwr.cli.start import start_run
from dance_flwr.config.plugins import METHODS, STRATEGIES
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.server.strategies import make_round
from dance_flwr.federation.wire.keys import STATISTICS
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo, Uplink
from dance_flwr.methods.personalised import Personalised
from dance_flwr.methods.server_side import ServerSide
from dance_flwr.metrics import accuracy
from dance_flwr.nn.model import ModelShape
from dance_flwr.runs.result import load_model

OWN_SERVER = ["local-only", "fedgta", "fedtad", "fedgvd", "fedsage"]


@pytest.fixture(scope="module")
def local(run):
    return run(method="local-only", evaluate_every=3)


def test_every_client_continues_with_its_own_model(local):
    up, down = models(local), models(local, up=False)
    checked = models(local, "evaluate", up=False)
    for client in range(3):
        assert len(up[client]) == 3
        assert all(equal(down[client][round_], up[client][round_ - 1]) for round_ in (1, 2))
        assert all(equal(sent, up[client][2]) for sent in checked[client])
    assert equal(down[0][0], down[1][0]) and not equal(up[0][0], up[1][0])


def test_local_only_is_training_in_isolation(local):
    stored = load_model(local.folder)
    for number in range(3):
        client = Client(local.data(number), local.config)
        shape = shape_of(client.data.text_dim, 3, local.config)
        state = initial_model(shape, local.config).state_dict()
        for round_ in (1, 2, 3):
            state, _ = client.train(state, RoundInfo("alone", round_, ""))
        assert equal(client_part(stored, number), state)


def test_the_kept_models_give_the_reported_accuracies(local):
    stored, hits, total = load_model(local.folder), 0, 0
    assert len(stored) == 3 * len(client_part(stored, 0)) and all(
        name.startswith("client-") for name in stored
    )
    for number, row in enumerate(local.result["clients"]):
        client = Client(local.data(number), local.config)
        part = client_part(stored, number)
        counts = client.finish(part, RoundInfo("again", 3, model_fingerprint(part)))["test"]
        assert row["test_accuracy"] == accuracy(counts.correct["deployed"], counts.total)
        hits, total = hits + counts.correct["deployed"], total + counts.total
    assert local.result["test_accuracy"] == accuracy(hits, total)


def test_the_result_says_whose_model_is_scored(local, dance):
    assert (local.result["evaluation"], local.result["strategy"]) == ("personalised", "local-only")
    assert (dance.result["evaluation"], dance.result["strategy"]) == ("global", "fedavg")


def test_personalised_is_declared_where_the_server_side_is():
    for name in METHODS:
        spec = get_spec(name)
        assert issubclass(spec.server_type(), ServerSide)
        # The personal part of these stays at the client.
        personal = issubclass(spec.server_type(), Personalised) or name in ("fedper", "ditto")
        assert spec.card.evaluation == ("personalised" if personal else "global")
        assert not spec.server or spec.uplink is Uplink.EACH
        assert not spec.server or name not in STRATEGIES, "a result names either in one place"


@pytest.mark.parametrize("method", ["local-only", "fedgta"])
def test_a_client_that_is_not_asked_keeps_its_last_model(run, method):
    finished = run(method=method, clients=3, client_fraction=0.67, rounds=4, evaluate_every=1)
    rows = finished.result["history"]
    checked, trained = (
        models(finished, "evaluate", up=False),
        [[c for c, up in r["bytes_up"].items() if up] for r in rows],
    )
    assert all(len(row) == 2 for row in trained) and len({tuple(row) for row in trained}) > 1
    for client in range(3):
        for round_ in range(1, 4):
            stored = equal(checked[client][round_], checked[client][round_ - 1])
            assert stored == (str(client) not in trained[round_])


class Broken:
    """The ClientApp, where client 1 uploads NaN in round 2."""

    def __init__(self, record):
        self.record = record

    def __call__(self, message, context):
        reply = client_app.app(message, context)
        asked = message.content.config_records.get("config", {})
        if message.metadata.message_type != "train" or context.node_config["partition-id"] != 1:
            return reply
        if asked["server-round"] != 2:
            return reply
        worse = {
            name: torch.full_like(tensor, torch.nan)
            for name, tensor in state_of(reply.content[self.record]).items()
        }
        content = reply.content
        content[self.record] = arrays_of(worse)
        return with_content(reply, content)


@pytest.mark.parametrize(
    ("method", "record"),
    [
        ("local-only", "arrays"),
        ("fedgvd", "arrays"),
        ("fedgta", STATISTICS),
        ("fedtad", STATISTICS),
    ],
)
def test_an_unusable_upload_is_skipped(run, method, record):
    finished = run(method=method, app=Broken(record), min_valid_replies=2, evaluate_every=1)
    (client, reason), *others = finished.result["history"][1]["absent"].items()
    assert client == "1" and "expected finite numbers" in reason and not others
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())
    checked = models(finished, "evaluate", up=False)
    if method != "fedtad":
        assert equal(checked[1][1], checked[1][0]) and not equal(checked[0][1], checked[0][0])


REFUSED = [
    (
        {"privacy_secure_aggregation": True},
        r"privacy\.secure-aggregation: expected a method that needs sums only",
    ),
    ({"privacy_dp": "central"}, r"privacy\.dp: expected a method that needs sums only"),
    (
        {"strategy": "fedadam"},
        r"strategy: expected the default, fedavg, since method '.*' brings its own",
    ),
]


@pytest.mark.parametrize("method", OWN_SERVER)
@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_unsupported_settings_are_refused_before_anything_starts(
    run, tiny, tmp_path, method, keys, message
):
    seen = []
    with pytest.raises(UserError, match=message) as caught:
        run(method=method, folder=tmp_path / "run", on_message=seen.append, **keys)
    assert "\n" not in str(caught.value) and not seen and not (tmp_path / "run").exists()
    values = {
        key.replace("privacy_", "privacy.").replace("_", "-"): value for key, value in keys.items()
    }
    with pytest.raises(UserError, match=message):
        start_run({**values, "data": str(tiny), "method": method}, True)


def test_a_method_of_sums_may_not_send_statistics(dance, run_config, monkeypatch):
    spec = replace(get_spec("fedgta"), uplink=Uplink.SUM)
    monkeypatch.setitem(METHODS.builtin, "fedgta", spec)
    client = Client(dance.data(0), run_config(method="fedgta"))
    state = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    with pytest.raises(
        ValueError, match="expected no statistics of a method of sums, found moments"
    ):
        client.train(state, RoundInfo("alone", 1, ""))


@pytest.mark.parametrize("method", OWN_SERVER)
@pytest.mark.parametrize(
    "case", ["no labelled node", "no edges", "a class is missing at one client"]
)
def test_edge_cases_run(run, crafted, method, case):
    edit, _, occurs = CASES[case]
    draft = Draft()
    edit(draft)
    data = crafted("edge", draft.ids, draft.texts(), draft.labels, draft.pairs, draft.split)
    finished = run(data=data, partition="random", clients=2, rounds=2, method=method)
    assert occurs(finished), "the graph does not show the case"
    assert np.isfinite([row["loss"] for row in finished.result["history"]]).all()
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())


@pytest.mark.parametrize("method", OWN_SERVER)
def test_methods_run_on_other_backbones_and_inductively(run, method):
    finished = run(method=method, rounds=1, backbone="gat", split_mode="inductive")
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())


def test_only_personalised_models_are_sent_in_parts(run_config):
    def round_of(method):
        shape = ModelShape(TEXT_DIM, 8, 3)
        return make_round(run_config(method=method), shape, lambda row: None, lambda row: None)

    whole = arrays_of({"head.bias": torch.zeros(2)})
    assert round_of("fedavg-full").model_for(whole, 3) is whole
    mine = {f"client-{k}/head.bias": torch.full((2,), float(k)) for k in (1, 11)}
    personal = round_of("local-only")
    assert state_of(personal.model_for(arrays_of(mine), 1))["head.bias"].tolist() == [1, 1]
    assert isinstance(personal.model_for(arrays_of(mine), 11), ArrayRecord)


def test_tables_say_whose_model_is_scored_and_know_the_papers_column():
    from dance_flwr_studies import get_experiment
    from dance_flwr_studies.reports import paper_values as paper
    from study_support.rows import cells_of, row_of

    def text(*names):
        rows = [row_of(cell, 0.5) for cell in cells_of("main-table", methods=names, seeds=(0,))]
        return "\n".join(map(str, get_experiment("main-table").render(rows).parts))

    assert "Each client's own model is scored: fedgta, local-only." in text(
        "local-only", "fedavg-full", "fedgta"
    )
    assert "own model is scored" not in text("fedavg-full", "fedtad")
    assert paper.main_number("cora", "fedgta", None) == (79.45, 0.23)
    assert paper.main_number("cora", "fedtad", None) is None, "the paper prints no accuracy of it"
