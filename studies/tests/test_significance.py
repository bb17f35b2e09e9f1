"""The corrected t-test, TOST and Holm: by hand, against scipy, and how often chance is rejected."""

import math

import numpy as np
import pytest
from dance_flwr_studies.reports.significance import MARGIN, corrected_test, holm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

THIRD = 1 / 3  # 20 % test over 60 % training nodes


def test_the_variance_of_the_mean_is_enlarged_by_the_split():
    """1, 2, 3 points: t = 0.02 / sqrt(2/3 1e-4) = sqrt(6), df 2, p = 1 - t / sqrt(t^2 + 2)."""
    test = corrected_test([0.01, 0.02, 0.03], THIRD)
    assert test.p == pytest.approx(1 - math.sqrt(3) / 2)
    # 0.975 quantile of t with two degrees of freedom: 4.302653
    half = 4.302653 * 0.02 / math.sqrt(6)
    assert test.interval == pytest.approx((0.02 - half, 0.02 + half), abs=1e-7)


def test_equivalence_is_the_worse_of_two_one_sided_tests():
    """0, 0.2, 0.4 points: error sqrt(2/3) 0.002, t = (0.002 - 0.01) / error = -sqrt(24), df 2."""
    test = corrected_test([0.0, 0.002, 0.004], THIRD)
    t = math.sqrt(24)
    assert test.p_equivalent == pytest.approx((1 - t / math.sqrt(t * t + 2)) / 2)
    assert corrected_test([0.0, -0.002, -0.004], THIRD).p_equivalent == test.p_equivalent
    assert corrected_test([0.009, 0.010, 0.011], THIRD).p_equivalent == pytest.approx(0.5)
    assert corrected_test([0.03, 0.031, 0.032], THIRD).p_equivalent > 0.99


differences = st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=12).filter(
    lambda values: np.std(values) > 1e-6
)


@given(differences)
def test_without_a_correction_it_is_the_test_of_scipy(values):
    ours, theirs = corrected_test(values, 0.0), ttest_1samp(values, 0.0)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-6)
    bounds = theirs.confidence_interval(0.95)
    assert ours.interval == pytest.approx((bounds.low, bounds.high), rel=1e-6, abs=1e-9)
    one_sided = (
        ttest_1samp(values, -MARGIN, alternative="greater").pvalue,
        ttest_1samp(values, MARGIN, alternative="less").pvalue,
    )
    assert ours.p_equivalent == pytest.approx(max(one_sided), rel=1e-6)


@pytest.mark.parametrize("values", [(), (0.1,), (0.1, 0.1, 0.1), (0.0, 0.0), (0.9 - 0.8, 0.1)])
def test_without_a_variance_there_is_no_test(values):
    assert corrected_test(values, THIRD) is None


@given(st.lists(st.none() | st.floats(0, 1), max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    adjusted, known = holm(values), [p for p in values if p is not None]
    for level in (0.01, 0.05, 0.2):
        rejected = 0
        for p in sorted(known):
            if p > level / (len(known) - rejected):
                break
            rejected += 1
        limit = sorted(known)[rejected - 1] if rejected else -1.0
        for p, ours in zip(values, adjusted, strict=True):
            # A product is at the level exactly where a quotient is, up to rounding.
            if p is not None and abs(ours - level) > 1e-12:
                assert (ours <= level) == (p <= limit)


def chance(rng, n, ratio):
    """Differences of two equal methods: a share of the variance is common to all seeds."""
    common = ratio / (1 + ratio)  # n_test / (n_test + n_train), Nadeau and Bengio's correlation
    return rng.normal(0, math.sqrt(common)) + rng.normal(0, math.sqrt(1 - common), n)


def test_chance_is_rejected_in_at_most_five_percent():
    rng, runs = np.random.default_rng(0), 1500
    drawn = [list(chance(rng, 10, THIRD)) for _ in range(runs)]
    corrected, plain = (
        np.mean([corrected_test(values, ratio).p < 0.05 for values in drawn])
        for ratio in (THIRD, 0.0)
    )
    assert corrected <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert plain > 0.2, "the test of independent pairs is fooled by what the splits share"


def test_holm_by_hand():
    """4 x 0.005, 3 x 0.01, 2 x 0.03, then 1 x 0.04 below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8]) and holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == [] and holm([None]) == [None]
    assert holm([None, 0.03, None]) == [None, 0.03, None], "no member of the family"
