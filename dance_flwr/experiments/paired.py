"""Paired tests over seeds: t = mean(d) / (std(d) / sqrt(n)), d_s = accuracy of DANCE minus that of
another, seed s.

A seed decides partition, split, first model and training of both sides, so most of what varies over
seeds is the same on both and leaves the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import ttest_1samp

from dance_flwr.experiments.tables import NOTHING, Group, Stat, markdown, stat_of

OWN = "dance"
LEVEL = 0.05
HOW = (
    "DANCE minus each other method in points of test accuracy, seed by seed; p of the two-sided paired t-test, not "
    "corrected for the number of comparisons. A method without condensation is compared with its one row at every r."
)


@dataclass(frozen=True)
class Paired:
    """DANCE against one other method on the seeds that both have.

    Attributes
    ----------
    difference : of the accuracies, DANCE's minus the other's; p : None below two pairs or where all
        differences agree
    """

    difference: Stat
    p: float | None

    @property
    def verdict(self) -> str:
        """Return in words who is ahead, and whether that could be chance."""
        if self.difference.mean is None:
            return NOTHING
        if self.difference.mean == 0:
            return "equal"
        side = "DANCE ahead" if self.difference.mean > 0 else "**DANCE loses**"
        return side if self.p is not None and self.p < LEVEL else f"{side}, within chance"


def paired(own: Group, other: Group) -> Paired:
    """Compare two groups seed by seed; seeds without a result on either side do not count."""
    accuracies = [
        {
            int(row.labels["seed"]): float(row.result["test_accuracy"])
            for row in group.rows
            if row.result
        }
        for group in (own, other)
    ]
    common = sorted(accuracies[0].keys() & accuracies[1].keys())
    differences = [accuracies[0][seed] - accuracies[1][seed] for seed in common]
    stat = stat_of(differences, len(own.rows))
    return Paired(stat, float(ttest_1samp(differences, 0.0).pvalue) if stat.std else None)


def comparisons(found: Sequence[Group]) -> str:
    """Return the table of DANCE against every other method at every ratio; empty where there is
    nothing to compare.
    """
    lines = []
    for own in (group for group in found if group.labels["method"] == OWN):
        ratio = own.labels["ratio"]
        rivals = [
            group
            for group in found
            if group.labels["method"] != OWN and group.labels["ratio"] in (ratio, "full")
        ]
        for other in rivals:
            made = paired(own, other)
            p = NOTHING if made.p is None else f"{made.p:.3f}"
            name = other.name(str(other.labels["method"]))
            lines.append(
                [name, f"{ratio}", made.difference.percent, p, made.difference.seeds, made.verdict]
            )
    headings = ["DANCE against", "r of DANCE", "difference, points", "p", "seeds", "verdict"]
    return markdown(headings, lines) if lines else ""
