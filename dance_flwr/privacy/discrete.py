"""The discrete Gaussian of Canonne, Kamath and Steinke (2020), sampled exactly and in bulk.

P(x) is proportional to exp(-x^2 / (2 sigma^2)) on the integers. A float that stands for a Gaussian
deviate has gaps, which tell values apart that the theory does not (Mironov 2012); integers have
none. Only integers are drawn and compared: rejection from a discrete Laplace distribution, and
Bernoulli(exp(-a / b)) by von Neumann's series, so that no probability is ever rounded.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from dance_flwr.privacy.mechanism import NoiseStream

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
LARGEST_SIGMA = 2**24  # squares of what is drawn then stay below 2^63


def discrete_gaussian(count: int, sigma: int, draw: NoiseStream) -> Integers:
    """Return [count] independent integers of the discrete Gaussian.

    Raises
    ------
    ValueError : sigma is not from 1 to `LARGEST_SIGMA`
    """
    if not 1 <= sigma <= LARGEST_SIGMA:
        raise ValueError(f"expected sigma from 1 to {LARGEST_SIGMA}, found {sigma}")
    parts, missing = [np.zeros(0, np.int64)], count
    while missing > 0:
        # 0.66 to 0.76 of the Laplace deviates pass, and 0.63 of what these are drawn from.
        y = _discrete_laplace(ceil(2.4 * missing) + 64, sigma, draw)
        gap = np.abs(y) - sigma
        parts.append(y[_bernoulli_exp(gap * gap, 2 * sigma * sigma, draw)][:missing])
        missing -= parts[-1].size
    return np.concatenate(parts)


def _discrete_laplace(most: int, scale: int, draw: NoiseStream) -> Integers:
    """Return up to `most` integers with P(x) proportional to exp(-|x| / scale)."""
    low = _below(scale, most, draw)
    low = low[_bernoulli_exp(low, scale, draw)]
    high = np.zeros_like(low)
    rising = np.arange(low.size)
    while rising.size:
        rising = rising[_bernoulli_exp(np.ones(rising.size, np.int64), 1, draw)]
        high[rising] += 1
    size = low + scale * high
    negative = _below(2, size.size, draw) == 1
    signed: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]
    return signed


def _bernoulli_exp(above: Integers, below: int, draw: NoiseStream) -> Truths:
    """Return one truth per entry, true with probability exp(-above / below).

    Parameters
    ----------
    above : [n] from 0; below : from 1
    """
    whole, rest = np.divmod(above, below)
    true = _bernoulli_exp_fraction(rest, below, draw)
    for done in range(int(whole.max(initial=0))):
        left = np.flatnonzero(true & (whole > done))
        true[left] = _bernoulli_exp_fraction(np.full(left.size, below), below, draw)
    return true


def _bernoulli_exp_fraction(above: Integers, below: int, draw: NoiseStream) -> Truths:
    """The same for above <= below: the first k with a false Bernoulli(above / (k below)) is odd."""
    true = np.zeros(above.size, np.bool_)
    left, k = np.arange(above.size), 1
    while left.size:
        going = _below(below * k, left.size, draw) < above[left]
        true[left[~going]] = k % 2 == 1
        left, k = left[going], k + 1
    return true


def _below(limit: int, count: int, draw: NoiseStream) -> Integers:
    """Return [count] integers, uniform from 0 to limit - 1; limit is below 2^62."""
    whole = 2**63 // limit * limit
    found: Integers = (draw.words(count) >> np.uint64(1)).astype(np.int64)
    while whole < 2**63 and (again := np.flatnonzero(found >= whole)).size:
        found[again] = (draw.words(again.size) >> np.uint64(1)).astype(np.int64)
    remainder: Integers = found % limit
    return remainder
