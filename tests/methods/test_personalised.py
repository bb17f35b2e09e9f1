"""Personalised models: who is sent which, what is kept and refused; training in isolation."""

from dataclasses import replace

import pytest
from support.contract import OwnServerContract, check_kept_models, check_skipped_upload
from support.models import equal
from support.outside.toy_method import METHOD

from dance_flwr.config.plugins import METHODS
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.wire.keys import STATISTICS
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo, Uplink
from dance_flwr.methods.server_side import entries_of
from dance_flwr.metrics import accuracy
from dance_flwr.runs.result import load_model


@pytest.fixture(scope="module")
def local(run):
    return run(method="local-only", evaluate_every=3)


def test_local_only_is_training_in_isolation(local):
    stored = load_model(local.folder)
    for number in range(3):
        client = Client(local.data(number), local.config)
        shape = shape_of(client.data.text_dim, 3, local.config)
        state = initial_model(shape, local.config).state_dict()
        for round_ in (1, 2, 3):
            state, _ = client.train(state, RoundInfo("alone", round_, ""))
        assert equal(entries_of(stored, number), state)


def test_the_kept_models_give_the_reported_accuracies(local):
    stored, hits, total = load_model(local.folder), 0, 0
    assert len(stored) == 3 * len(entries_of(stored, 0)) and all(
        name.startswith("client-") for name in stored
    )
    for number, row in enumerate(local.result["clients"]):
        client = Client(local.data(number), local.config)
        part = entries_of(stored, number)
        counts = client.finish(part, RoundInfo("again", 3, model_fingerprint(part)))["test"]
        assert row["test_accuracy"] == accuracy(counts.correct["deployed"], counts.total)
        hits, total = hits + counts.correct["deployed"], total + counts.total
    assert local.result["test_accuracy"] == accuracy(hits, total)


def test_a_client_that_is_not_asked_keeps_its_last_model(run):
    check_kept_models(run, "local-only")


@pytest.fixture
def toy(monkeypatch):
    """The name of a method with statistics, here one with a server side of its own."""
    monkeypatch.setitem(METHODS.builtin, "toy-method", METHOD)
    return "toy-method"


def test_an_unusable_upload_is_skipped(run, toy):
    check_skipped_upload(run, "local-only", "arrays")
    check_skipped_upload(run, toy, STATISTICS, personalised=False)


def test_a_method_of_sums_may_not_send_statistics(dance, run_config, monkeypatch):
    monkeypatch.setitem(METHODS.builtin, "toy-method", replace(METHOD, uplink=Uplink.SUM))
    client = Client(dance.data(0), run_config(method="toy-method"))
    state = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    with pytest.raises(ValueError, match="expected no statistics of a method of sums, found share"):
        client.train(state, RoundInfo("alone", 1, ""))


@pytest.mark.parametrize("method", ["local-only"])
class TestOwnServer(OwnServerContract):
    """Of the methods of this package."""
