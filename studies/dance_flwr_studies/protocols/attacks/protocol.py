"""Attacks as measurements: what uploads reveal to the server about training nodes and labels."""

import json
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dance_flwr.client_data.reading_probe import with_choice
from dance_flwr.config.options import Value
from dance_flwr.config.paths import data_root
from dance_flwr.config.tree import RunConfig, defaults, flatten, parse
from dance_flwr.data.imports.loading import absolute_source
from dance_flwr.data.prepare import prepare
from dance_flwr.disk import private_lock
from dance_flwr.federation.client.client import Client, initial_model, open_client, shape_of
from dance_flwr.federation.server.session import chosen_reading
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.upload_checks import update_norm
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr_studies.engine.cells import Cell, Experiment, Label, Request, dataset_name
from dance_flwr_studies.engine.folder import changes, settings_of
from dance_flwr_studies.protocols.attacks.crafted import measure_crafted
from dance_flwr_studies.protocols.attacks.inference import (
    Values,
    class_shares,
    head_change,
    held_out_nodes,
    label_correlation,
    loss_slope,
    membership,
    node_losses,
    supervised_members,
)
from dance_flwr_studies.protocols.attacks.observations import (
    LEVELS,
    State,
    mean_state,
    observations,
    with_privacy,
)
from dance_flwr_studies.protocols.attacks.tables import BEFORE, render

# Labels show most when training begins, members when a model is nearly trained.
ATTACKED = (5, 20)  # rounds; rounds beyond a run's last count as its last
CRAFTED = ("fedavg-full", "gcn")  # whose first layer crafted models rebuild


def _cells(request: Request) -> list[Cell]:
    return [
        _cell(request.config(dataset, method, seed))
        for dataset in request.datasets
        for method in request.methods
        for seed in request.seeds
    ]


def _cell(config: RunConfig) -> Cell:
    """Return a measurement that its labels describe in full; "settings" are non-default keys."""
    values = flatten(config) | {"data": absolute_source(config.data, data_root(config))}
    own: dict[str, Label] = {"method": config.method, "seed": config.seed}
    settings = json.dumps(changes(values, {**defaults(), **own}), sort_keys=True)
    labels = {"dataset": dataset_name(config.data), **own, "settings": settings}
    return Cell(labels, measure=f"{__name__}:measure")


def measure(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Train a federation and attack what the server receives in each attacked round.

    Parameters
    ----------
    labels : "method", "seed", and "settings", a JSON object of flat configuration keys

    Returns
    -------
    "config" (flat keys that decide the result), "clients" (per attacked round: members, others and
    update norm by client), "seen" (one dict per round and observation), and for `fedavg-full` on
    the default backbone "crafted" (as `measure_crafted` returns it)

    Raises
    ------
    ConfigError : settings under which secure aggregation or distributed noise is refused, such as
        two clients
    """
    settings: dict[str, Value] = json.loads(str(labels["settings"]))
    config = parse(settings | {"method": str(labels["method"]), "seed": int(labels["seed"])})
    # Fail now, not after the training.
    with_privacy(config, "distributed", next(iter(LEVELS.values())))
    folder = prepare(config).folder
    run = f"attacks-{sha256(json.dumps(dict(labels), sort_keys=True).encode()).hexdigest()[:12]}"
    # Two measurements with these labels would share the folders at the clients.
    with private_lock(folder / f".{run}.lock"):
        # What a killed measurement left.
        _clean(folder, run)
        try:
            clients = _clients(folder, config)
            measured = _federate(clients, config, run)
            if (config.method, config.backbone) == CRAFTED:
                measured["crafted"] = measure_crafted(clients)
        finally:
            _clean(folder, run)
    return {"config": settings_of(config), **measured}


def _clients(folder: Path, config: RunConfig) -> list[Client]:
    folders = [folder / f"client-{k}" for k in range(config.clients)]
    votes = [open_client(path, config).reading_votes() for path in folders]
    config = with_choice(config, chosen_reading(config, votes))
    return [open_client(path, config) for path in folders]


def _clean(folder: Path, run: str) -> None:
    for path in folder.glob(f"client-*/runs/{run}"):
        shutil.rmtree(path)


def _federate(clients: Sequence[Client], config: RunConfig, run: str) -> dict[str, Any]:
    attacked = {min(round_, config.rounds) for round_ in ATTACKED}
    data = clients[0].data
    state = initial_model(
        shape_of(data.text_dim, len(data.card.class_names), config), config
    ).state_dict()
    measured: dict[str, Any] = {"clients": [], "seen": []}
    for round_ in range(1, max(attacked) + 1):
        info = RoundInfo(run, round_, model_fingerprint(state))
        replies = [client.train(state, info) for client in clients]
        uploads, reports = [_copy(model) for model, _ in replies], [report for _, report in replies]
        if round_ in attacked:
            members = [supervised_members(_plain(c), state, c.data, config, run) for c in clients]
            # An attack must be scored by true members.
            _check([nodes.numel() for nodes in members], reports)
            facts, lines = _attack(clients, round_, state, uploads, members, config)
            measured["clients"].append(facts)
            measured["seen"] += lines
        # Without noise: only what the server has of an attacked round is protected.
        state = mean_state(uploads, [client.weight for client in clients])
    return measured


def _check(counts: Sequence[int], reports: Sequence[Report]) -> None:
    reported = [report.counts["evidence-supervised"] for report in reports]
    if any(theirs and theirs != ours for ours, theirs in zip(counts, reported, strict=True)):
        raise ValueError(
            f"expected the supervised nodes that clients reported, {reported}, found {list(counts)}"
        )


def _attack(
    clients: Sequence[Client],
    number: int,
    start: Mapping[str, Tensor],
    uploads: Sequence[State],
    members: Sequence[Tensor],
    config: RunConfig,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return facts of the round by client, and the scores of every observation.

    Parameters
    ----------
    start : the model before the round; uploads, members : by client, the latter node numbers
    """
    before = [-node_losses(_plain(client), start, client.data) for client in clients]
    lines: list[dict[str, Any]] = [
        {"observation": BEFORE, "round": number, "epsilon": None}
        | {"auc": _membership(clients, members, before)}
    ]
    weights = [client.weight for client in clients]
    for seen in observations(start, uploads, weights, config, number):
        draws = [_scores(clients, start, states, members) for states in seen.draws]
        means = {key: _mean([draw[key] for draw in draws]) for key in draws[0]}
        lines.append({"observation": seen.name, "round": number, "epsilon": seen.epsilon} | means)
    facts = {
        "round": number,
        "members": [nodes.numel() for nodes in members],
        "others": [held_out_nodes(client.data).numel() for client in clients],
        "update_norm": [round(update_norm(upload, start), 4) for upload in uploads],
    }
    return facts, lines


def _scores(
    clients: Sequence[Client],
    start: Mapping[str, Tensor],
    states: Sequence[State],
    members: Sequence[Tensor],
) -> dict[str, float | None]:
    """Return what [M] models, one per client, reveal: membership by slope, and labels by bias."""
    slopes = [loss_slope(_plain(c), start, s, c.data) for c, s in zip(clients, states, strict=True)]
    classes = len(clients[0].data.card.class_names)
    shares = [
        class_shares(client.data.train_labels[nodes], classes)
        for client, nodes in zip(clients, members, strict=True)
    ]
    changes = [head_change(start, state) for state in states]
    return {
        "slope_auc": _membership(clients, members, slopes),
        "bias": label_correlation(np.stack(changes), np.stack(shares)),
    }


def _membership(
    clients: Sequence[Client], members: Sequence[Tensor], values: Sequence[Values]
) -> float | None:
    triples = zip(clients, members, values, strict=True)
    return _mean([membership(v, nodes, held_out_nodes(c.data)) for c, nodes, v in triples])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _copy(state: Mapping[str, Tensor]) -> State:
    # The next client of this process trains in the same tensors.
    return {name: value.detach().cpu().clone() for name, value in state.items()}


def _plain(client: Client) -> PlainModel:
    """Return the model of this process with the client's class prior, to load parameters into."""
    assert isinstance(client.model, PlainModel)
    client.load(client.model.state_dict())
    return client.model


EXPERIMENT = Experiment(
    title="Attacks",
    question=(
        "What the server can infer about a client's training nodes and labels from what it "
        "receives, with and without secure aggregation and differential privacy: not a claim of "
        "the paper."
    ),
    cells=_cells,
    render=render,
    metrics={},
    methods=("dance", "fedavg-full"),
    seeds=(0, 1, 2),
)
