"""Two finished runs on the same test nodes, and what the difference of their accuracies can show.

Every test node is predicted by both models, so that the interval is one of pairs: nodes that both
get right, or both wrong, do not widen it.
"""

from dataclasses import dataclass
from pathlib import Path

from dance_flwr.api.prediction.tested import tested_clients
from dance_flwr.api.prediction.worth import paired_difference
from dance_flwr.errors import UserError
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.runs.result import read_result


@dataclass(frozen=True)
class Comparison:
    """The methods of two runs, their accuracies on the same test nodes as shares, and half of the
    95 % interval of the difference.
    """

    method: str
    other: str
    accuracy: float
    other_accuracy: float
    nodes: int
    half_width: float

    @property
    def verdict(self) -> str:
        """Say in words which run is better, as far as these nodes can show it."""
        difference = self.accuracy - self.other_accuracy
        interval = f"{100 * difference:+.1f} ± {100 * self.half_width:.1f} points"
        if abs(difference) <= self.half_width:
            return f"no difference that {self.nodes:,} test nodes can show ({interval})"
        side = "better" if difference > 0 else "worse"
        return f"{self.method} is {side} than {self.other} ({interval})"


def compare_runs(run: Path, other: Path) -> Comparison:
    """Compare the models that two runs deploy, node by node."""
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
