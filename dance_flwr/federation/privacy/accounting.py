"""Privacy accounting of client-level Gaussian noise over rounds: epsilon from sigma, and back.

Neighbouring runs differ in all contributions of one client, which are replaced by zeros. One round
adds noise of standard deviation sigma * C to a sum whose parts have norms up to C: the
Gaussian mechanism with multiplier sigma.

Every client in every round: T rounds are exactly one Gaussian mechanism of multiplier sigma /
sqrt(T), whose trade-off is known in closed form (Balle and Wang 2018). Clients drawn with
probability q per round: Poisson-sampled Gaussians, composed by their privacy loss distributions.
Both are computed by `dp-accounting`.
"""

from functools import lru_cache
from math import inf, sqrt
from typing import Any


def epsilon_spent(
    noise_multiplier: float, sampling_rate: float, rounds: int, delta: float
) -> float:
    """Return epsilon after `rounds` rounds; infinite without noise, 0 before the first round.

    Parameters
    ----------
    noise_multiplier : sigma, in units of the clipping norm
    sampling_rate : q, the probability that a client takes part in a round
    """
    if rounds == 0:
        return 0.0
    if noise_multiplier <= 0:
        return inf
    if sampling_rate >= 1:
        return float(
            _library().gaussian_mechanism.get_epsilon_gaussian(
                noise_multiplier / sqrt(rounds), delta
            )
        )
    return _sampled(noise_multiplier, sampling_rate, rounds, delta)


def noise_for(epsilon: float, delta: float, rounds: int, sampling_rate: float) -> float:
    """Return the smallest sigma for which `rounds` rounds spend at most `epsilon` at `delta`."""
    if sampling_rate >= 1:
        return float(
            _library().gaussian_mechanism.get_sigma_gaussian(epsilon, delta) * sqrt(rounds)
        )
    # Epsilon falls with sigma: doubling finds an upper bound, bisection the rest to 1e-4.
    low, high = 1e-2, 1.0
    while _sampled(high, sampling_rate, rounds, delta) > epsilon:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if _sampled(middle, sampling_rate, rounds, delta) > epsilon
            else (low, middle)
        )
    return high


def rounds_within(
    noise_multiplier: float, sampling_rate: float, epsilon: float, delta: float, max_rounds: int
) -> int:
    """Return how many rounds, up to `max_rounds`, stay within the budget.

    Epsilon grows with every round, so that bisection finds the last one.
    """
    low, high = 0, max_rounds
    while low < high:
        middle = (low + high + 1) // 2
        spent = epsilon_spent(noise_multiplier, sampling_rate, middle, delta)
        # A sigma that `noise_for` computed spends epsilon up to the last bits of a float.
        inside = spent <= epsilon * (1 + 1e-9)
        low, high = (middle, high) if inside else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def _sampled(noise_multiplier: float, sampling_rate: float, rounds: int, delta: float) -> float:
    library = _library()
    event = library.PoissonSampledDpEvent(sampling_rate, library.GaussianDpEvent(noise_multiplier))
    # In neighbouring runs a client's contribution is replaced by zeros (decision 9).
    accountant = library.pld.PLDAccountant(library.NeighboringRelation.REPLACE_SPECIAL)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def _library() -> Any:
    # Here: a client without differential privacy does not wait for it.
    import dp_accounting
    import dp_accounting.pld

    return dp_accounting
