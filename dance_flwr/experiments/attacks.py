"""Attacks as measurements: what the server learns of a client's training nodes and labels from what
it receives.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from dance_flwr.config.options import Value
from dance_flwr.config.paths import data_root
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data import unambiguous
from dance_flwr.data.prepare import prepare
from dance_flwr.data.site import Site
from dance_flwr.experiments.attack_models import (
    DRAWS,
    LEVELS,
    OTHER,
    State,
    Values,
    class_shares,
    head_change,
    held_out,
    label_correlation,
    left_out,
    loss_fall,
    loss_slope,
    mean_state,
    membership,
    node_losses,
    observations,
    protected,
    supervised,
    update_norm,
)
from dance_flwr.experiments.cells import (
    Cell,
    Experiment,
    Label,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr.experiments.study import settings_of
from dance_flwr.experiments.tables import NOTHING, Group, common, groups, markdown
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.client.device import pick_device
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel

ATTACKED = (5, 20)  # rounds; later ones than a run has count as its last
BEFORE = "nothing of this round"
Told = dict[str, Any]

HOW = (
    "The adversary is a server that follows the protocol and is curious. It knows the global model before a round and "
    "what it received in it. It is made strong on purpose: for every candidate node it also has the text, the edges "
    "and the label, and may run models on the victim's graph.\n\n"
    "Members are the labelled nodes over which a client took its loss of the plain view in this round; others are its "
    "validation and test nodes, on whose labels nobody trains. The score is the fall of a node's loss from the model "
    "before the round to the model received (after Yeom et al. 2018, who take the loss itself), or its slope, the "
    f"linear part of that fall, which noise hides less. `{BEFORE}` is the server without any upload: the loss itself "
    "under the global model. That is what earlier rounds told it and what the choice of the members tells; nothing "
    f"done to this round's uploads takes it back. `{OTHER}` is a control, as members are not chosen at random: what "
    "the same scores show where the upload was trained on none of the nodes. The column on training nodes left out "
    "asks which of a client's training nodes were in this round.\n\n"
    "Label columns: correlation over (client, class) between the change of the plain head, its bias or the row sums "
    "of its weights, and the client's share of the class among its members, both as differences from the mean over "
    "clients. A mean is the same for every client, so nothing tells one from another: the correlation is not defined, "
    "and 0 stands for it. AUC 50 % and correlation 0 are chance.\n\n"
    "All clients train in every round and are averaged in process, without noise before the attacked round. Its "
    f"uploads are then clipped and noised as each line says; such lines are means over {DRAWS} draws of the noise. Own "
    "uploads have local noise, means have distributed noise sized for the fewest clients with which secure "
    "aggregation may end. Sigma is in units of the clipping norm, epsilon that of all rounds of the run. "
    "Attack models that are trained, and servers that combine rounds or deviate from the protocol, are not measured: "
    "a number near chance says that these two attacks fail, no more. Mean over clients, then mean ± sample standard "
    "deviation over seeds."
)


def _cells(request: Request) -> list[Cell]:
    return [
        _cell(request.config(dataset, method, seed))
        for dataset in request.datasets
        for method in request.methods
        for seed in request.seeds
    ]


def _cell(config: RunConfig) -> Cell:
    """Return a measurement that its labels describe in full: "settings" are the keys that are not
    the defaults.
    """
    defaults = flatten(RunConfig())
    values = flatten(config) | {"data": unambiguous(config.data, data_root(config))}
    settings = {
        key: value
        for key, value in values.items()
        if value != defaults[key] and key not in ("seed", "method")
    }
    labels: dict[str, Label] = {
        "dataset": dataset_name(config.data),
        "method": config.method,
        "seed": config.seed,
    }
    return Cell(
        labels | {"settings": json.dumps(settings, sort_keys=True)}, measure="attacks:measure"
    )


def measure(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Train a federation to the last attacked round and attack what the server receives in each
    attacked round.

    Parameters
    ----------
    labels : "method", "seed", and "settings", a JSON object of flat configuration keys

    Returns
    -------
    "config" (flat keys that decide the result), "clients" (per attacked round: members, others and
    update norm by client), and "seen" (one dict per round and observation)

    Raises
    ------
    ConfigError : settings under which secure aggregation or distributed noise is refused, such as
        two clients
    """
    settings: dict[str, Value] = json.loads(str(labels["settings"]))
    config = parse(settings | {"method": str(labels["method"]), "seed": int(labels["seed"])})
    protected(
        config, "distributed", next(iter(LEVELS.values()))
    )  # refused now, not after the training
    torch.set_num_threads(config.torch_threads)
    folder = prepare(config).folder
    run = f"attacks-{sha256(json.dumps(dict(labels), sort_keys=True).encode()).hexdigest()[:12]}"
    with FileLock(folder / f".{run}.lock"):
        _clean(folder, run)
        try:
            found = _federate(_clients(folder, config), config, run)
        finally:
            _clean(folder, run)
    return {"config": settings_of(config), **found}


def _clients(folder: Path, config: RunConfig) -> list[Client]:
    inductive = config.split_mode == "inductive"
    sites = [
        Site(folder / f"client-{k}", pick_device(config), inductive) for k in range(config.clients)
    ]
    return [Client(site, config) for site in sites]


def _clean(folder: Path, run: str) -> None:
    for left in folder.glob(f"client-*/runs/{run}"):
        shutil.rmtree(left)


def _federate(clients: Sequence[Client], config: RunConfig, run: str) -> dict[str, Any]:
    attacked = {min(round_, config.rounds) for round_ in ATTACKED}
    site = clients[0].site
    state = initial_model(
        shape_of(site.text_dim, len(site.card.class_names), config), config
    ).state_dict()
    found: dict[str, Any] = {"clients": [], "seen": []}
    for round_ in range(1, max(attacked) + 1):
        info = RoundInfo(run, round_, model_fingerprint(state))
        reports = [client.train(state, info)[1] for client in clients]
        # A client's reply is its live model, which the attack overwrites.
        uploads = [_copy(client.model.state_dict()) for client in clients]
        if round_ in attacked:
            members = [supervised(_plain(c), state, c.site, config, run) for c in clients]
            _check([nodes.numel() for nodes in members], reports)
            facts, seen = _attack(clients, state, uploads, members, config, round_)
            found["clients"].append(facts)
            found["seen"] += seen
        state = mean_state(uploads, [client.weight for client in clients])
    return found


def _check(found: Sequence[int], reports: Sequence[Report]) -> None:
    """Raise a ValueError where clients that counted their supervised nodes found others."""
    told = [report.counts["evidence-supervised"] for report in reports]
    if any(count and count != own for own, count in zip(found, told, strict=True)):
        raise ValueError(
            f"expected the supervised nodes that clients reported, {told}, found {list(found)}"
        )


def _attack(
    clients: Sequence[Client],
    start: Mapping[str, Tensor],
    uploads: Sequence[State],
    members: Sequence[Tensor],
    config: RunConfig,
    round_: int,
) -> tuple[dict[str, Any], list[Told]]:
    """Return the facts of the round by client, and what every observation gives away."""
    before = [-node_losses(_plain(client), start, client.site) for client in clients]
    lines: list[Told] = [
        {"observation": BEFORE, "round": round_, "epsilon": None} | _told(clients, members, before)
    ]
    for seen in observations(start, uploads, [client.weight for client in clients], config, round_):
        draws = [_read(clients, start, states, members) for states in seen.draws]
        means = {key: _mean([draw[key] for draw in draws]) for key in draws[0]}
        lines.append({"observation": seen.name, "round": round_, "epsilon": seen.epsilon} | means)
    facts = {
        "round": round_,
        "members": [nodes.numel() for nodes in members],
        "others": [held_out(client.site).numel() for client in clients],
        "update_norm": [round(update_norm(upload, start), 4) for upload in uploads],
    }
    return facts, lines


def _read(
    clients: Sequence[Client],
    start: Mapping[str, Tensor],
    states: Sequence[State],
    members: Sequence[Tensor],
) -> dict[str, float | None]:
    """Return what the models that the server has of the clients ([M]) give away."""
    pairs = list(zip(clients, states, strict=True))
    told = _told(
        clients, members, [loss_fall(_plain(c), start, state, c.site) for c, state in pairs]
    )
    slopes = [loss_slope(_plain(c), start, state, c.site) for c, state in pairs]
    told |= {f"slope_{name}": value for name, value in _told(clients, members, slopes).items()}
    classes = len(clients[0].site.card.class_names)
    labels = [
        client.site.train_labels[nodes] for client, nodes in zip(clients, members, strict=True)
    ]
    shares = np.stack([class_shares(own, classes) for own in labels])
    for part in ("bias", "weight"):
        scores = np.stack([head_change(start, state, part) for state in states])
        told[part], told[f"{part}_rank"] = label_correlation(scores, shares)
    return told


def _told(
    clients: Sequence[Client], members: Sequence[Tensor], scores: Sequence[Values]
) -> dict[str, float | None]:
    """Return means over clients: members against held-out nodes, and against training nodes left
    out of the round.
    """
    held = [
        membership(s, own, held_out(c.site))
        for c, own, s in zip(clients, members, scores, strict=True)
    ]
    left = [
        membership(s, own, left_out(c.site, own))
        for c, own, s in zip(clients, members, scores, strict=True)
    ]
    aucs, found = [one.auc for one in held if one], [one.tpr for one in held if one]
    return {
        "auc": _mean(aucs),
        "tpr": _mean(found),
        "auc_left_out": _mean([one.auc for one in left if one]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _copy(state: Mapping[str, Tensor]) -> State:
    return {name: value.detach().cpu().clone() for name, value in state.items()}


def _plain(client: Client) -> PlainModel:
    assert isinstance(client.model, PlainModel)
    return client.model


def _render(rows: Sequence[Row]) -> Section:
    left = [
        f"{row.labels['dataset']} {row.labels['method']} seed {row.labels['seed']}"
        for row in rows
        if not row.measure
    ]
    parts = [HOW] + ([f"Not measured yet: {', '.join(left)}."] if left else [])
    lines = [line for row in rows if row.measure for line in _lines(row)]
    for dataset, method in dict.fromkeys(
        (line.labels["dataset"], line.labels["method"]) for line in lines
    ):
        # One method at a time: methods are tuned apart, and no line is compared with one of another
        # method.
        own = [
            line
            for line in lines
            if (line.labels["dataset"], line.labels["method"]) == (dataset, method)
        ]
        parts += [f"**{dataset}, {method}**: {_facts(own, rows)}.", _table(groups(own))]
    return Section(tuple(parts))


def _lines(row: Row) -> list[Row]:
    """Return one row with a result per round and observation of a measurement."""
    shared = {name: row.labels[name] for name in ("dataset", "method", "seed")}
    return [
        Row(
            *(
                row.experiment,
                shared | {"round": seen["round"], "observation": seen["observation"]},
                row.name,
            ),
            config=row.measure["config"],
            result=seen,
        )
        for seen in row.measure["seen"]
    ]


def _facts(own: Sequence[Row], rows: Sequence[Row]) -> str:
    """Return sizes over clients and seeds, and the settings that all lines share."""
    names = {row.name for row in own}
    facts = [facts for row in rows if row.name in names for facts in row.measure["clients"]]
    sizes = [
        f"{what} {min(values):g} to {max(values):g}"
        for what, key in (
            ("members of a client", "members"),
            ("others", "others"),
            ("update norms", "update_norm"),
        )
        if (values := [value for one in facts for value in one[key]])
    ]
    keys = (
        "clients",
        "rounds",
        "local-epochs",
        "learning-rate",
        "privacy.clipping-norm",
        "privacy.delta",
    )
    return ", ".join([*sizes, common(own, keys)])


def _table(own: Sequence[Group]) -> str:
    headings = [
        "the server has",
        "round",
        "epsilon",
        "AUC %",
        "found at 5 % false positives, %",
        "AUC by slope %",
    ]
    headings += [
        "found by slope, %",
        "slope against training nodes left out, AUC %",
        "labels by bias",
    ]
    headings += ["labels by weights", "seeds"]
    lines = []
    for group in own:
        epsilon = group.rows[0].result["epsilon"]
        line = [group.name(str(group.labels["observation"])), str(group.labels["round"])]
        line += [NOTHING if epsilon is None else f"{epsilon:.3g}"]
        line += [
            group.stat(key).percent
            for key in ("auc", "tpr", "slope_auc", "slope_tpr", "slope_auc_left_out")
        ]
        lines.append(
            [*line, group.stat("bias").text(), group.stat("weight").text(), group.stat("auc").seeds]
        )
    return markdown(headings, lines)


EXPERIMENT = Experiment(
    name="attacks",
    title="Attacks",
    question=(
        "What the server can tell of a client's training nodes and labels from what it receives, with and without "
        "secure aggregation and differential privacy: not a claim of the paper."
    ),
    cells=_cells,
    render=_render,
    methods=("dance", "fedavg-full"),
    seeds=(0, 1, 2),
)
