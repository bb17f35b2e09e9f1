"""What joining a federation was worth to each of its clients, on the client's own test nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dance_flwr.api.prediction.tested import TestedClient, tested_clients
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.errors import UserError, counted
from dance_flwr.metrics import QUANTILE, macro_f1
from dance_flwr.runs.result import read_result
from dance_flwr.terminal import size

# As a client could do alone, as the federation's model does, and what the client deploys.
MODELS = {ALONE: "alone", "global": "federated", "deployed": "deployed"}


@dataclass(frozen=True)
class Worth:
    """One client: what three models reach on its test nodes, and what the difference can show.

    Attributes
    ----------
    client, nodes : its number, and its labelled test nodes
    accuracy, macro_f1 : by the names in `MODELS`; None without test nodes
    gained, lost : nodes on which only what is deployed, only the model trained alone is right
    """

    client: int
    nodes: int
    accuracy: Mapping[str, float | None]
    macro_f1: Mapping[str, float | None]
    gained: int
    lost: int

    @property
    def sentence(self) -> str:
        """Say in words what joining was worth, as far as these nodes can show it."""
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
    """Yield what joining was worth to the clients of a run with personal models.

    Parameters
    ----------
    run : folder of the run
    client_folder : of the one client to read; None = all of the run's partition
    """
    result = read_result(run)
    personal = str(result["config"].get("personal", "off"))
    if ALONE not in PERSONAL.get(personal, ()):
        raise UserError(
            f"{run}: expected a run with personal models, whose clients have also trained alone, "
            f"found personal = {personal}; run again with --set personal=mix"
        )
    for tested in tested_clients(run, result, client_folder):
        yield _of_client(tested)


def _of_client(tested: TestedClient) -> Worth:
    labels = tested.labels
    guesses = {name: tested.predicted[view] for view, name in MODELS.items()}
    hits = {name: guess == labels for name, guess in guesses.items()}
    shares = {name: float(h.float().mean()) if len(labels) else None for name, h in hits.items()}
    scores = {name: _macro_f1(guess, labels) for name, guess in guesses.items()}
    gained = int((hits["deployed"] & ~hits["alone"]).sum())
    lost = int((hits["alone"] & ~hits["deployed"]).sum())
    return Worth(tested.client, len(labels), shares, scores, gained, lost)


def _macro_f1(guess: Tensor, labels: Tensor) -> float | None:
    size = int(torch.cat([guess, labels]).max()) + 1 if len(labels) else 0
    parts = (labels[guess == labels], guess, labels)
    return macro_f1(*(torch.bincount(part, minlength=size).tolist() for part in parts))


def paired_difference(gained: int, lost: int, nodes: int) -> tuple[float, float]:
    """Return the difference of two accuracies on the same nodes, and half of its 95 % interval.

    The interval of Agresti and Min (2005, "Simple improved confidence intervals for comparing
    matched proportions"): half a node is added to each of the four counts. The difference is the
    plain one.

    Parameters
    ----------
    gained, lost : nodes on which only the first, only the second is right

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


def with_cost(row: Worth, result: Mapping[str, Any]) -> str:
    """Return the sentence of a client with what its rounds cost."""
    seconds, moved = cost_of(result, row.client)
    cost = f"{size(moved)} of models" + ("" if seconds is None else f", {seconds:.1f} s")
    return f"client {row.client}: {row.sentence}; its rounds cost {cost}"


def cost_of(result: Mapping[str, Any], client: int) -> tuple[float | None, int]:
    """Return the seconds that a client trained in rounds, and the bytes of its models both ways.

    The seconds are None where only the sums of all clients are known.
    """
    phases = result.get("seconds_by_client", {}).get(str(client))
    ways = (row[way] for row in result["history"] for way in ("bytes_down", "bytes_up"))
    moved = sum(int(sizes.get(str(client), 0)) for sizes in ways)
    return sum(phases.values()) if phases else None, moved
