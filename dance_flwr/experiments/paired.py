"""Paired t-tests over seeds: t = mean(d) / (std(d) / sqrt(n)), d_s the difference for seed s.

d_s is DANCE's accuracy minus the other method's. A seed decides partition, split, first model and
training of both methods, so that most of the variation over seeds cancels in the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import ttest_1samp

from dance_flwr.experiments.tables import NOTHING, Group, Stat, markdown, stat_of
from dance_flwr.experiments.variants import by_seed

METHOD = "dance"  # compared with every other method
LEVEL = 0.05
HOW = (
    "DANCE minus each other method in points of test accuracy, seed by seed; p of the two-sided "
    "paired t-test, not corrected for the number of comparisons. A method without condensation is "
    "compared with its one row at every r."
)


@dataclass(frozen=True)
class PairedTest:
    """DANCE against one other method on the seeds that both have.

    Attributes
    ----------
    difference : of the accuracies, DANCE's minus the other's
    p : None below two pairs, or where all differences are equal
    """

    difference: Stat
    p: float | None

    @property
    def verdict(self) -> str:
        """Return in words which method is ahead, and whether that could be chance."""
        if self.difference.mean is None:
            return NOTHING
        if self.difference.mean == 0:
            return "equal"
        side = "DANCE ahead" if self.difference.mean > 0 else "**DANCE loses**"
        return side if self.p is not None and self.p < LEVEL else f"{side}, within chance"


def paired_test(group: Group, other: Group) -> PairedTest:
    """Compare two groups seed by seed; seeds without a result in either do not count."""
    mine, theirs = (by_seed(side, "test_accuracy") for side in (group, other))
    common = sorted(mine.keys() & theirs.keys(), key=int)
    differences = [mine[seed] - theirs[seed] for seed in common]
    stat = stat_of(differences, len(group.rows))
    return PairedTest(stat, float(ttest_1samp(differences, 0.0).pvalue) if stat.std else None)


def comparisons(compared: Sequence[Group]) -> str:
    """Return the table of DANCE against every other method at every ratio; empty without pairs."""
    lines = []
    for group in (group for group in compared if group.labels["method"] == METHOD):
        ratio = group.labels["ratio"]
        for other in compared:
            if other.labels["method"] == METHOD or other.labels["ratio"] not in (ratio, "full"):
                continue
            test = paired_test(group, other)
            p = NOTHING if test.p is None else f"{test.p:.3f}"
            name = other.name(str(other.labels["method"]))
            line = [name, f"{ratio}", test.difference.percent, p, test.difference.seeds]
            lines.append([*line, test.verdict])
    headings = ["DANCE against", "r of DANCE", "difference, points", "p", "seeds", "verdict"]
    return markdown(headings, lines) if lines else ""
