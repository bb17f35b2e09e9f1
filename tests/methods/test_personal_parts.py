"""FedPer and Ditto: what stays at a client, and the limits of the proximal term."""

from dataclasses import replace

import pytest
import torch
from support.models import equal, models

from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.personal_parts import LAST, MEAN, keep, stored
from dance_flwr.runs.result import load_model


@pytest.fixture(scope="module")
def fedper(run):
    return run(method="fedper", evaluate_every=1)


def start_of(client, config):
    shape = shape_of(client.data.text_dim, len(client.data.card.class_names), config)
    return initial_model(shape, config).state_dict()


def head(state):
    return {name: tensor for name, tensor in state.items() if name.startswith("head")}


def test_no_trained_head_leaves_a_client(fedper):
    up, down = models(fedper), models(fedper, up=False)
    initial = head(down[0][0])
    for client in range(3):
        assert all(equal(head(state), initial) for state in up[client] + down[client])
        assert not equal(up[client][0], down[client][0])
        trained = stored(fedper.data(client), fedper.result["run"], 3, LAST)
        assert trained.keys() == {"weight", "bias"}
        assert not torch.equal(trained["weight"], initial["head_graph.weight"])


def test_a_client_is_scored_with_its_own_head(fedper):
    state = load_model(fedper.folder)
    run, best = fedper.result["run"], fedper.result["best_round"]
    for number, row in enumerate(fedper.result["clients"]):
        data = fedper.data(number)
        client = Client(data, replace(fedper.settled, method="fedavg-full"))
        mine = {f"head_graph.{n}": t for n, t in stored(data, run, best, MEAN).items()}
        client.load(state | mine)
        counts = client.finish(state | mine, RoundInfo("x", best, ""))
        assert counts["test"].correct["deployed"] / counts["test"].total == row["test_accuracy"]


def test_the_head_of_a_round_starts_at_the_last_one_and_a_repetition_repeats_it(fedper):
    client = Client(fedper.data(0), fedper.settled)
    state = start_of(client, fedper.settled)
    for round_ in (1, 2):
        client.train(state, RoundInfo("repeat", round_, ""))
    once = stored(client.data, "repeat", 2, LAST)
    client.train(state, RoundInfo("repeat", 2, ""))
    assert equal(once, stored(client.data, "repeat", 2, LAST))
    assert not equal(once, stored(client.data, "repeat", 1, LAST))
    assert stored(client.data, "repeat", 0, LAST) == {}


def test_the_average_is_that_of_the_server_and_old_rounds_are_removed(fedper):
    data, config = fedper.data(1), replace(fedper.settled, ema_decay=0.7, evaluate_every=3)
    average = ModelAverage(0.7)
    for round_ in range(1, 8):
        state = {"x": torch.full((2,), float(round_**2))}
        keep(data, config, RoundInfo("mean", round_, ""), state)
        expected = state_of(average.add(arrays_of(state)))
        torch.testing.assert_close(stored(data, "mean", round_, MEAN), dict(expected))
    files = sorted(path.name for path in (data.folder / "runs" / "mean").iterdir())
    assert files == [f"personal-{round_:05d}.npz" for round_ in (3, 6, 7)]


def test_ditto_has_the_global_model_of_fedavg(run):
    ditto, full = run(method="ditto", seed=4), run(method="fedavg-full", seed=4)
    uploads = zip(models(ditto).items(), models(full).items(), strict=True)
    for (client, mine), (other, theirs) in uploads:
        assert client == other and len(mine) == len(theirs) == 3
        assert all(equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert ditto.result["evaluation"] == "personalised"


def test_without_a_proximal_term_ditto_is_training_alone(run):
    ditto = run(method="ditto", ditto_mu=0.0, evaluate_every=3)
    alone = load_model(run(method="local-only", evaluate_every=3).folder)
    for client in range(3):
        personal = stored(ditto.data(client), ditto.result["run"], 3, LAST)
        for name, tensor in personal.items():
            torch.testing.assert_close(tensor, alone[f"client-{client}/{name}"])


def test_with_a_large_one_the_personal_model_is_the_received_one(run, run_config):
    data = run(method="ditto").data(0)
    gaps = []
    for mu in (0.0, 1e6):
        config = run_config(
            method="ditto", ditto_mu=mu, local_epochs=300, learning_rate=0.001, rounds=3
        )
        client = Client(data, config)
        client.train(start := start_of(client, config), RoundInfo(f"mu-{mu}", 1, ""))
        # The second round pulls to what the server sends then.
        moved = {name: tensor + 0.05 for name, tensor in start.items()}
        client.train(moved, RoundInfo(f"mu-{mu}", 2, ""))
        personal = stored(data, f"mu-{mu}", 2, LAST)
        gaps.append(max(float((personal[n] - moved[n]).abs().max()) for n in personal))
    assert gaps[0] > 0.1
    assert gaps[1] < 0.005
