"""The discrete Gaussian: its distribution, its tails, and how close it is to the continuous one."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dance_flwr.federation.privacy.noise import MAX_SIGMA, NoiseStream, discrete_gaussian


def stream(number=0):
    return NoiseStream(number.to_bytes(32, "little"))


@pytest.mark.parametrize("sigma", [1, 2, 7])
def test_every_integer_has_its_probability(sigma):
    drawn = discrete_gaussian(200_000, sigma, stream(sigma))
    most = 5 * sigma
    grid = np.arange(-most, most + 1)
    p = np.exp(-(grid**2) / (2 * sigma**2))
    p /= np.exp(-(np.arange(-60 * sigma, 60 * sigma + 1) ** 2) / (2 * sigma**2)).sum()
    counts = np.array([(drawn == x).sum() for x in grid] + [(np.abs(drawn) > most).sum()])
    expected = np.append(p, max(1 - p.sum(), 1e-12)) * drawn.size
    enough = expected > 5
    kept = counts[enough], expected[enough] * (counts[enough].sum() / expected[enough].sum())
    assert stats.chisquare(*kept).pvalue > 1e-4
    assert counts[~enough].sum() < 60


@pytest.mark.parametrize("sigma", [1000, 3_000_000, MAX_SIGMA])
def test_wide_ones_are_gaussian(sigma):
    drawn = discrete_gaussian(200_000, sigma, stream(sigma))
    assert drawn.size == 200_000 and drawn.dtype == np.int64
    assert stats.kstest((drawn + 0.5) / sigma, "norm").pvalue > 1e-4
    assert drawn.std() == pytest.approx(sigma, rel=0.01)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("sigma", [0, -1, MAX_SIGMA + 1])
def test_a_sigma_that_integers_cannot_hold_is_refused(sigma):
    with pytest.raises(ValueError, match="expected sigma"):
        discrete_gaussian(1, sigma, stream())


@pytest.mark.parametrize("sigma", [8, 50, 1000])
def test_it_is_the_rounded_gaussian_up_to_three_over_sigma_squared(sigma):
    """The step from the continuous account: log ratio of the two within 8.3 sigma."""
    x = np.arange(0, int(8.3 * sigma), max(1, sigma // 50)).astype(float)
    middle, half = x / sigma, 0.5 / sigma
    rounded = special.log_ndtr(-middle + half) + np.log1p(
        -np.exp(special.log_ndtr(-middle - half) - special.log_ndtr(-middle + half))
    )
    discrete = -(middle**2) / 2 - math.log(sigma * math.sqrt(2 * math.pi))
    assert np.abs(rounded - discrete).max() <= 3 / sigma**2 + 1e-9
