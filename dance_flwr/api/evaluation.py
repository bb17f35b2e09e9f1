"""Evaluate finished runs again, on the test nodes of client folders on this machine.

Clients send counts, neither pairs of classes nor what two models say of one node, so the record of
a run has neither. Here the saved models predict the test nodes again, as the clients did at the
end: for the comparison of two runs, and for what joining the federation was worth to each client.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.validated import labelled_nodes
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import data_commitment
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.errors import UserError, counted
from dance_flwr.federation.client.client import Client, shape_of
from dance_flwr.federation.client.own_models import deployed_own
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import QUANTILE
from dance_flwr.runs.result import config_of, load_model, read_result


@dataclass(frozen=True)
class TestedClient:
    """The predictions of one client's test nodes.

    Attributes
    ----------
    client : number of the client; class_names : in the order of the classes
    labels : [m] int64
    predicted : view -> [m] int64 class, "deployed" among them
    """

    client: int
    class_names: tuple[str, ...]
    labels: Tensor
    predicted: Mapping[str, Tensor]


def tested_clients(
    run: Path, result: Mapping[str, Any], client_folder: Path | None = None
) -> Iterator[TestedClient]:
    """Yield the clients of a finished run with the predictions of their test nodes.

    Parameters
    ----------
    run : folder of the run; result : content of its `result.json`
    client_folder : folder of one client; None = all clients of the run's partition

    Raises
    ------
    UserError : the folders are not here, or their data are not those of the run
    """
    partition = result.get("partition_dir")
    if client_folder is None and (not partition or not Path(partition).is_dir()):
        raise UserError(
            "expected the clients' folders on this machine, found none; name one with "
            "--client-folder"
        )
    config = config_of(result)
    weights = load_model(run, str(result["model_fingerprint"]))
    # The clients that took part, by the run's record.
    recorded = result.get(DATA_SHA256, {})
    took_part = [number for number in range(config.clients) if str(number) in recorded]
    folders = [Path(str(partition)) / f"client-{number}" for number in took_part]
    if client_folder is not None:
        folders = [client_folder]
    if not folders:
        raise UserError(
            f"{run}: expected a record with a hash of each client's data, found none; run again"
        )
    for folder in folders:
        card = read_card(folder)  # its files are checked when they are opened
        # Why (decision 20): predictions on other data would not be those of the run.
        if data_commitment(card) != recorded.get(str(card.client)):
            raise UserError(
                f"{folder}: expected the data of the run, found others, altered or prepared again; "
                "restore them"
            )
        yield _predicted(folder, config, weights, result)


@torch.no_grad()
def _predicted(
    folder: Path, config: RunConfig, weights: Mapping[str, Tensor], result: Mapping[str, Any]
) -> TestedClient:
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        data = ClientData.of(folder, config, Path(scratch) / "derived")
        client, names = Client(data, config), tuple(data.card.class_names)
        side = client.spec.server_type()(config, shape_of(data.text_dim, len(names), config))
        client.load(dict(side.model_for(data.card.client, weights)))
        client.own = deployed_own(folder, str(result["run"]), config)
        parts = [labelled_nodes(data, split) for split in (VAL, TEST)]
        info = RoundInfo(
            *(str(result["run"]), int(result["best_round"]), str(result["model_fingerprint"])),
            final=True,
            smooth=client.smooth,
        )
        # Both splits at once, as at the end of the run: a method may draw neighbours per batch.
        views = client.predict(info, torch.cat(parts))
        guesses = {name: probs.argmax(dim=1)[len(parts[0]) :] for name, probs in views.items()}
        return TestedClient(data.card.client, names, data.labels[parts[1]], guesses)


# View -> name: a model trained alone, the federation's model, and what the client deploys.
MODELS = {ALONE: "alone", "global": "federated", "deployed": "deployed"}


@dataclass(frozen=True)
class Worth:
    """Accuracies of three models on the test nodes of one client.

    Attributes
    ----------
    client, nodes : number of the client, and of its labelled test nodes
    accuracy : by the names in `MODELS`; None without test nodes
    gained, lost : number of nodes that only the deployed model, only the model trained alone
        predicts correctly
    """

    client: int
    nodes: int
    accuracy: Mapping[str, float | None]
    gained: int
    lost: int

    @property
    def sentence(self) -> str:
        """What joining was worth, in words, as far as these nodes can show."""
        difference, half_width = paired_difference(self.gained, self.lost, self.nodes)
        points, margin = 100 * difference, 100 * half_width
        if not self.nodes:
            return "no test nodes, so nothing is known"
        if abs(points) <= margin:
            shown = f"{points:+.1f} ± {margin:.1f}"
            return f"no difference that {counted(self.nodes, 'node')} can show ({shown})"
        verb = "is worth" if points > 0 else "costs"
        return f"joining {verb} {abs(points):.1f} ± {margin:.1f} points here"


def worth(run: Path, client_folder: Path | None = None) -> Iterator[Worth]:
    """Yield what joining was worth to each client of a run with personal models.

    Parameters
    ----------
    run : folder of the run
    client_folder : folder of one client; None = all clients of the run's partition
    """
    result = read_result(run)
    personal = str(result["config"].get("personal", "off"))
    if ALONE not in PERSONAL.get(personal, ()):
        raise UserError(
            f"{run}: expected a run with personal models, whose clients have also trained alone, "
            f"found personal = {personal}; run again with --set personal=mix"
        )
    for tested in tested_clients(run, result, client_folder):
        hits = {name: tested.predicted[view] == tested.labels for view, name in MODELS.items()}
        nodes = len(tested.labels)
        shares = {name: float(hit.float().mean()) if nodes else None for name, hit in hits.items()}
        gained = int((hits["deployed"] & ~hits["alone"]).sum())
        lost = int((hits["alone"] & ~hits["deployed"]).sum())
        yield Worth(tested.client, nodes, shares, gained, lost)


def paired_difference(gained: int, lost: int, nodes: int) -> tuple[float, float]:
    """Return the difference of two accuracies on the same nodes, and half of its 95 % interval.

    The interval of Agresti and Min (2005, "Simple improved confidence intervals for comparing
    matched proportions"): half a node is added to each of the four counts. The difference is the
    plain one.

    Parameters
    ----------
    gained, lost : number of nodes that only the first, only the second model predicts correctly

    Examples
    --------
    >>> difference, half = paired_difference(12, 4, 100)
    >>> round(difference, 3), round(half, 3)
    (0.08, 0.078)
    """
    if not nodes:
        return 0.0, 0.0
    total, up, down = nodes + 2, gained + 0.5, lost + 0.5
    spread = (up + down - (up - down) ** 2 / total) ** 0.5 / total
    return (gained - lost) / nodes, QUANTILE * spread


@dataclass(frozen=True)
class Comparison:
    """Two methods, their accuracies on the same test nodes, and half of the 95 % interval of the
    difference.
    """

    method: str
    other: str
    accuracy: float
    other_accuracy: float
    nodes: int
    half_width: float

    @property
    def verdict(self) -> str:
        """Which run is better, in words, as far as these nodes can show."""
        difference = self.accuracy - self.other_accuracy
        interval = f"{100 * difference:+.1f} ± {100 * self.half_width:.1f} points"
        if abs(difference) <= self.half_width:
            return f"no difference that {self.nodes:,} test nodes can show ({interval})"
        side = "better" if difference > 0 else "worse"
        names = "the first run", "the other"
        first, second = (self.method, self.other) if self.method != self.other else names
        return f"{first} is {side} than {second} ({interval})"


def compare_runs(run: Path, other: Path) -> Comparison:
    """Compare the models that two runs deploy, node by node.

    Nodes that both predict correctly, or both wrongly, do not widen the interval.
    """
    results = [read_result(folder) for folder in (run, other)]
    if results[0].get(DATA_SHA256) != results[1].get(DATA_SHA256):
        raise UserError(
            f"{other}: expected a run on the clients of {run}, found one on other data; compare "
            "runs with the same data, clients, partition and seed"
        )
    pairs = zip(*map(tested_clients, (run, other), results), strict=True)
    hits = [[one.predicted["deployed"] == one.labels for one in pair] for pair in pairs]
    gained = sum(int((mine & ~theirs).sum()) for mine, theirs in hits)
    lost = sum(int((theirs & ~mine).sum()) for mine, theirs in hits)
    right, nodes = sum(int(mine.sum()) for mine, _ in hits), sum(len(mine) for mine, _ in hits)
    if not nodes:
        raise UserError(f"{run}: expected test nodes to compare on, found none at any client")
    _, half_width = paired_difference(gained, lost, nodes)
    first, second = (str(result["method"]) for result in results)
    other_accuracy = (right - gained + lost) / nodes
    return Comparison(first, second, right / nodes, other_accuracy, nodes, half_width)
