"""Attacks: scores by hand, members of a round, an overfitting client, noise, the experiment."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine import runner
from dance_flwr_studies.engine.cells import Request
from dance_flwr_studies.engine.rows import load_rows
from dance_flwr_studies.engine.start import start as start_experiment
from dance_flwr_studies.protocols.attacks import protocol as experiment
from dance_flwr_studies.protocols.attacks.inference import (
    class_shares,
    head_change,
    held_out_nodes,
    label_correlation,
    loss_slope,
    membership,
    node_losses,
    supervised_members,
)
from dance_flwr_studies.protocols.attacks.observations import LEVELS, MEAN, OTHER, OWN, observations
from dance_flwr_studies.reports.tables import NOTHING
from study_support.inline import Inline
from support.graphs import SMALL, WORDS, node_id, sentences, text_graph

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import flatten, parse
from dance_flwr.dance import training as local
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.privacy.dp import NoiseStream, add_noise
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo

NODES = 150
# A client that memorises its labels.
OVERFIT = {
    "method": "fedavg-full",
    "dropout": 0.0,
    "weight_decay": 0.0,
    "hidden_dim": 32,
    "local_epochs": 60,
}


def test_a_known_change_of_the_head_gives_the_right_sign():
    start, *seen = (
        {"head_graph.bias": torch.tensor(bias)} for bias in ([0.5, 0.5], [0.6, 0.4], [0.4, 0.7])
    )
    shares = np.stack(
        [class_shares(torch.tensor(labels), 2) for labels in ([0, 0, 0, 1], [1, 1, 1])]
    )
    assert shares.tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert head_change(start, seen[1]) == pytest.approx([-0.1, 0.2])
    scores = np.stack([head_change(start, state) for state in seen])
    assert label_correlation(scores, shares) > 0.9
    assert label_correlation(-scores, shares) == -label_correlation(scores, shares)


def open_clients(config):
    folder = prepare(config).folder
    return [
        Client(ClientData(folder / f"client-{k}", torch.device("cpu")), config)
        for k in range(config.clients)
    ]


def train_once(clients, run):
    """Return the model before the first round and the uploads after it."""
    config, data = clients[0].config, clients[0].data
    start = initial_model(
        shape_of(data.text_dim, len(data.card.class_names), config), config
    ).state_dict()
    info = RoundInfo(run, 1, model_fingerprint(start))
    return start, [
        {k: v.clone() for k, v in client.train(start, info)[0].items()} for client in clients
    ]


@pytest.fixture(scope="module")
def overfit(run_config, tmp_path_factory):
    """Clients, the first model and uploads on random labels, which can only be memorised."""
    from dance_flwr.data.graphs.folder import write_folder

    rng = np.random.default_rng(3)
    words = [word for group in WORDS.values() for word in group]
    texts = [sentences(rng, words, 2) for _ in range(NODES)]
    pairs = np.argwhere(np.triu(rng.random((NODES, NODES)) < 0.015, 1))
    folder = tmp_path_factory.mktemp("graphs") / "by-heart"
    ids = [node_id(i) for i in range(NODES)]
    write_folder(text_graph("by-heart", ids, texts, rng.integers(0, 3, NODES), pairs), folder)
    clients = open_clients(run_config(data=str(folder), partition="random", **OVERFIT))
    start, uploads = train_once(clients, "attack-overfit")
    members = [
        supervised_members(c.model, start, c.data, c.config, "attack-overfit") for c in clients
    ]
    return SimpleNamespace(clients=clients, start=start, uploads=uploads, members=members)


def loss_fall(model, start, seen, data):
    return node_losses(model, start, data) - node_losses(model, seen, data)


def auc(overfit, states, score=loss_fall):
    """Mean AUC over clients."""
    values = [
        membership(
            score(client.model, overfit.start, state, client.data), own, held_out_nodes(client.data)
        )
        for client, own, state in zip(overfit.clients, overfit.members, states, strict=True)
    ]
    return float(np.mean(values))


def test_an_overfitting_client_reveals_its_members(overfit):
    rng = np.random.default_rng(0)
    own = auc(overfit, overfit.uploads)
    chance = [
        auc(overfit, overfit.uploads, lambda m, a, b, data: rng.random(data.num_nodes))
        for _ in range(20)
    ]
    assert own > 0.75 and own > max(chance) + 0.1
    assert auc(overfit, overfit.uploads, loss_slope) > np.mean(chance) + 0.05


@pytest.mark.parametrize("score", [loss_fall, loss_slope])
def test_noise_hides_members_and_little_noise_does_not(overfit, score):
    def noisy(deviation):
        draws = [
            [
                add_noise(s, deviation, NoiseStream.seeded(d, "test", round_=1, client=k))
                for k, s in enumerate(overfit.uploads)
            ]
            for d in range(8)
        ]
        return np.mean([auc(overfit, states, score) for states in draws])

    assert noisy(100.0) == pytest.approx(0.5, abs=0.06)
    assert noisy(1e-5) == pytest.approx(auc(overfit, overfit.uploads, score), abs=0.01)


def test_observations_are_uploads_means_and_both_under_noise(overfit):
    config = overfit.clients[0].config
    seen = {
        one.name: one for one in observations(overfit.start, overfit.uploads, [1, 1, 1], config, 1)
    }
    assert len(seen) == 3 + 2 * len(LEVELS) and list(seen)[:3] == [OWN, MEAN, OTHER]
    assert seen[f"{OWN}, local epsilon 8"].epsilon == pytest.approx(8) and seen[OWN].epsilon is None
    for name, one in seen.items():
        for states in one.draws:
            assert (states[0] is states[1]) == name.startswith(MEAN), "a mean is the same for all"
    first, second, *_ = (
        draw[0]["head_graph.bias"] for draw in seen[f"{OWN}, local sigma 0.01"].draws
    )
    assert not torch.equal(first, second)
    weak, strong = (
        _spread(seen[f"{OWN}, local {level}"], overfit.start)
        for level in ("sigma 0.01", "sigma 0.1")
    )
    assert strong > 5 * weak


def _spread(one, start):
    return float(
        np.mean(
            [
                (draw[0]["head_graph.weight"] - start["head_graph.weight"]).std()
                for draw in one.draws
            ]
        )
    )


def test_slope_is_the_derivative_of_the_fall(run_config):
    client = open_clients(run_config(method="fedavg-full", backbone="sgc"))[
        0
    ]  # smooth: no unit switches within a step
    start, (seen, *_) = train_once([client], "attack-slope")
    step = 1e-2
    near = {name: torch.lerp(start[name], seen[name], step) for name in start}
    back = {name: torch.lerp(start[name], seen[name], -step) for name in start}
    measured = loss_fall(client.model, back, near, client.data) / (2 * step)
    slope = loss_slope(client.model, start, seen, client.data)
    assert slope == pytest.approx(measured, abs=1e-3) and np.abs(slope).max() > 1e-2
    assert (loss_fall(client.model, start, start, client.data) == 0).all()


@pytest.mark.parametrize("every", [1, 2])
def test_members_are_what_the_round_was_trained_on(run_config, monkeypatch, every):
    recorded = []

    def record(*arguments):
        recorded.append(nodes(*arguments))
        return recorded[-1]

    nodes = local.supervised_nodes
    monkeypatch.setattr(local, "supervised_nodes", record)
    client = open_clients(run_config(dance_core_refresh_every=1, dance_text_refresh_every=every))[0]
    state, run = initial_model(*_shape(client)).state_dict(), f"attack-members-{every}"
    for round_ in (1, 2, 3):
        info = RoundInfo(run, round_, model_fingerprint(state))
        upload = {k: v.clone() for k, v in client.train(state, info)[0].items()}
        members = supervised_members(client.model, state, client.data, client.config, run)
        assert members.tolist() == recorded[-1].tolist()
        assert 0 < members.numel() < client.data.num_nodes
        state = upload


def _shape(client):
    data = client.data
    return shape_of(data.text_dim, len(data.card.class_names), client.config), client.config


@pytest.fixture(scope="module")
def study(tiny, tmp_path_factory):
    """A study of the experiment on the tiny graph, one seed, both methods."""
    out, patch = tmp_path_factory.mktemp("study"), pytest.MonkeyPatch()
    patch.setattr(runner, "ProcessPoolExecutor", Inline)
    pairs = [f"{key}={value}" for key, value in {**SMALL, "rounds": 2}.items()]
    try:
        asked = {"datasets": [str(tiny)], "seeds": [0]}
        assert (
            start_experiment("attacks", asked, pairs, out, command="dance-flwr experiment attacks")
            == 0
        )
    finally:
        patch.undo()
    return out


def test_the_experiment_runs_through_the_runner_and_renders(study):
    rows = load_rows(study).by_experiment["attacks"]
    assert [row.labels["method"] for row in rows] == ["dance", "fedavg-full"]
    names = 4 + 2 * len(LEVELS)
    for row in rows:
        assert (
            row.measure == json.loads(json.dumps(row.measure))
            and row.measure["config"]["data"] == "tiny"
        )
        (facts,) = row.measure["clients"]
        assert facts["round"] == 2, "the run is shorter than the rounds that are attacked"
        assert len(facts["members"]) == 3 and min(facts["members"]) > 0
        assert len(set(facts["update_norm"])) > 1, "clients of one process share the model"
        assert len(row.measure["seen"]) == names
        for seen in row.measure["seen"]:
            assert 0 <= seen.get("slope_auc", seen.get("auc")) <= 1
            if seen["observation"].startswith(MEAN):
                assert seen["bias"] == 0
    text = "\n".join(get_experiment("attacks").render(rows).parts)
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and "the server has" not in line
    ]
    lines = [line for line in lines if "---" not in line]
    crafted = 6  # a head, the control, the guess and three crafted models
    assert len(lines) == names + crafted and "**tiny**: dance 1 seed," in text and "Yeom" in text
    shown = [f"{100 * row.measure['seen'][1]['slope_auc']:.2f}" for row in rows]
    labels = [f"{row.measure['seen'][1]['bias']:.2f}" for row in rows]
    cells = [word for pair in zip(shown, labels, strict=True) for word in pair]
    assert f"| own upload | {NOTHING} | {' | '.join(cells)} |" in text
    (mean,) = [line for line in lines if line.startswith(f"| {MEAN} |")]
    assert [word.strip() for word in mean.split("|")][4::2] == [NOTHING, NOTHING]


def test_crafted_models_are_measured_with_and_without_the_checks_of_a_node(study):
    rows = load_rows(study).by_experiment["attacks"]
    assert "crafted" not in rows[0].measure
    counts = dict(rows[1].measure["crafted"])
    total = counts.pop("labelled")
    assert counts.pop("guess") == counts.pop("the run's seed") == [0, 0, 0]
    assert 0 < counts["traps"][0] == counts["traps"][2] <= total
    assert all(first == 0 for _, first, _ in counts.values()) and counts["bins"][2] == 0
    text = "\n".join(get_experiment("attacks").render(rows).parts)
    assert f"| start model, of {total} rows |" in text
    assert f"| traps | {counts['traps'][0]} | 0 |" in text


def test_nothing_is_left_at_the_clients_and_again_is_the_same(study, monkeypatch):
    row = load_rows(study).by_experiment["attacks"][1]
    again = experiment.measure(row.labels)
    assert again["seen"] == row.measure["seen"]
    settings = parse(json.loads(row.labels["settings"]) | {"method": "fedavg-full", "seed": 0})
    assert not list(prepare(settings).folder.glob("client-*/runs/attacks-*"))


def test_labels_say_everything_a_measurement_reads():
    request = Request(("cora",), ("dance",), (0, 1), 7, {"dance.mix": 0.25})
    first, second = experiment.EXPERIMENT.cells(request)
    assert first.measure == f"{experiment.__name__}:measure" and {
        first.labels["seed"],
        second.labels["seed"],
    } == {
        0,
        1,
    }
    settings = json.loads(first.labels["settings"]) | {"method": "dance", "seed": 0}
    assert flatten(parse(settings)) == flatten(request.config("cora", "dance", 0))
