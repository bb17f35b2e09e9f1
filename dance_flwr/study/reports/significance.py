"""Tests of a mean difference over repeated random splits, and Holm's correction of their number.

Seeds draw training and test nodes anew from the same labelled nodes, so that results of two seeds
are correlated and the t-test of independent pairs rejects too often. Nadeau and Bengio (2003,
"Inference for the generalization error") enlarge the variance of the mean by n_test / n_train.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy.stats import t as student

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
    error = math.sqrt((1 / n + ratio) * variance(differences))
    half = error * student.ppf(1 - LEVEL / 2, degrees)
    return Corrected(
        p=float(2 * student.sf(abs(mean) / error, degrees)),
        p_equivalent=float(student.sf((MARGIN - abs(mean)) / error, degrees)),
        interval=(float(mean - half), float(mean + half)),
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p~_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)) over the m values in ascending order (Holm).

    Returns
    -------
    adjusted values in the order of `p_values`; None is no member of the family and stays None
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = largest
    return adjusted
