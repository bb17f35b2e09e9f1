"""DANCE against another method, seed by seed: corrected t-test, equivalence and verdict.

Seeds draw training and test nodes anew from the same labelled nodes, so that results of two seeds
are correlated and the t-test of independent pairs rejects too often. Nadeau and Bengio (2003,
"Inference for the generalization error") enlarge the variance of the mean by n_test / n_train.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import TypeVar

from scipy.stats import t as student

from dance_flwr_studies.reports.tables import NOTHING, Group, Metric, Stat, markdown, stat_of

K = TypeVar("K")
METHOD = "dance"  # compared with every other method
HOW = (
    "Differences are DANCE minus the other method in points of test accuracy, paired by seed. "
    "Brackets: 95 % interval of the paired t-test with the variance correction of Nadeau and "
    "Bengio (2003) for repeated random splits. **Ahead** and **behind**: p after Holm's correction "
    "is below 0.05; *equivalent*: two one-sided tests at 0.05, not corrected for their number, "
    "reject a difference of 1 point; no word: undecided."
)
LEVEL = 0.05
MARGIN = 0.01  # one point: a difference below it is taken for none
_NO_SPREAD = 1e-12  # standard deviation of equal differences, up to rounding


@dataclass(frozen=True)
class Corrected:
    """What the corrected t-test says about a mean difference.

    Attributes
    ----------
    p : of the two-sided test that the mean is 0
    p_equivalent : of TOST, the larger p of the two one-sided tests that the mean is not above
        -`MARGIN`, and not below `MARGIN`
    interval : the mean lies in it with confidence 1 - `LEVEL`
    """

    p: float
    p_equivalent: float
    interval: tuple[float, float]


def corrected_test(differences: Sequence[float], ratio: float) -> Corrected | None:
    """Test with t = mean(d) / sqrt((1/n + n_test/n_train) var(d)), n - 1 degrees of freedom.

    Parameters
    ----------
    differences : d, one per seed, as shares
    ratio : n_test / n_train; 0 gives the paired t-test of independent samples

    Returns
    -------
    None below two differences, or where all are equal: there is no variance to test against
    """
    n = len(differences)
    if n < 2 or math.sqrt(variance(differences)) < _NO_SPREAD:
        return None
    mean, degrees = fmean(differences), n - 1
    # 1 / n alone is for independent samples, which splits of the same nodes are not.
    error = math.sqrt((1 / n + ratio) * variance(differences))
    half = error * student.ppf(1 - LEVEL / 2, degrees)
    return Corrected(
        p=float(2 * student.sf(abs(mean) / error, degrees)),
        # The larger of the two p is that of the nearer bound.
        p_equivalent=float(student.sf((MARGIN - abs(mean)) / error, degrees)),
        interval=(float(mean - half), float(mean + half)),
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p~_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)) over the m values in ascending order (Holm).

    Returns
    -------
    adjusted values in the order of `p_values`; None stays None and does not count
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        # Adjusted values must not fall where p rises.
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class PairedTest:
    """DANCE against one other method on the seeds that both have.

    Attributes
    ----------
    difference : of the accuracies, DANCE's minus the other's
    test : None below two pairs, or where all differences are equal
    p_holm : p corrected for the number of comparisons; None until `corrected` sets it
    """

    difference: Stat
    test: Corrected | None = None
    p_holm: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below 0.05."""
        return self.p_holm is not None and self.p_holm < LEVEL

    @property
    def verdict(self) -> str:
        """Return which method is better, or that the two are equivalent; "" for neither."""
        mean, test = self.difference.mean, self.test
        if mean is None or test is None:
            return ""
        if self.is_significant:
            return "**ahead**" if mean > 0 else "**behind**"
        return "*equivalent*" if test.p_equivalent < LEVEL else ""

    @property
    def text(self) -> str:
        """Return "difference [interval] verdict"; a dash where there is no difference."""
        return f"{self.interval_text} {self.verdict}".rstrip()

    @property
    def interval_text(self) -> str:
        """Return "difference [interval]" in points, the difference alone without an interval."""
        mean = self.difference.mean
        if self.test is None or mean is None:
            return self.difference.points
        low, high = (100 * bound for bound in self.test.interval)
        return f"{100 * mean:+.2f} [{low:+.2f}, {high:+.2f}]{self.difference.missing}"


def paired_test(
    group: Group, other: Group, metric: Metric = "test_accuracy", bound: float = 0.0
) -> PairedTest:
    """Compare two groups seed by seed; seeds without a result in either do not count.

    Parameters
    ----------
    bound : subtracted from every difference
    """
    mine, theirs = (side.by_seed(metric) for side in (group, other))
    # A seed that one side was never asked for is not a missing one.
    requested = set.intersection(*({row.labels["seed"] for row in g.rows} for g in (group, other)))
    common = sorted(mine.keys() & theirs.keys(), key=int)
    differences = [mine[seed] - theirs[seed] - bound for seed in common]
    test = corrected_test(differences, split_ratio(group)) if differences else None
    return PairedTest(stat_of(differences, len(requested)), test)


def interval_test(mean: float, interval: tuple[float, float]) -> PairedTest:
    """Return what an interval at `LEVEL`, of a bootstrap, says of a mean difference."""
    low, high = interval
    # An interval has no p value; it rejects 0 if it excludes 0.
    p = 0.0 if low > 0 or high < 0 else 1.0
    return PairedTest(Stat(mean, None, 1, 1), Corrected(p, 1.0, interval))


def corrected(tests: Mapping[K, PairedTest]) -> dict[K, PairedTest]:
    """Return the tests with Holm's correction over all of them."""
    adjusted = holm([test.test.p if test.test else None for test in tests.values()])
    pairs = zip(tests.items(), adjusted, strict=True)
    return {key: replace(test, p_holm=p) for (key, test), p in pairs}


def comparison_table(corner: str, tests: Mapping[tuple[str, str], PairedTest]) -> str:
    """Return a table of the tests by (line, column); a dash where there is none."""
    columns = list(dict.fromkeys(column for _, column in tests))
    lines = [
        [name, *(tests[name, at].text if (name, at) in tests else NOTHING for at in columns)]
        for name in dict.fromkeys(name for name, _ in tests)
    ]
    return markdown([corner, *columns], lines)


def split_ratio(group: Group) -> float:
    """Return n_test / n_train: the test share over the training share of the labelled nodes."""
    return float(group.setting("test-ratio")) / float(group.setting("train-ratio"))
