"""Privacy accounting of client-level Gaussian noise over rounds: epsilon from sigma, and back.

Neighbouring runs differ in all contributions of one client, which are replaced by zeros. One round
adds noise of standard deviation sigma * C to a sum of parts with norms up to C: the Gaussian
mechanism with multiplier sigma.

If every client is in every round, T rounds are exactly one Gaussian mechanism of multiplier sigma /
sqrt(T), with a closed form (Balle and Wang 2018). If clients are drawn with probability q per
round, rounds are Poisson-sampled Gaussians, composed by their privacy loss distributions.
`dp-accounting` computes both.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any

from dance_flwr.disk import ledger
from dance_flwr.errors import UserError


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
    """Return the number of rounds within the budget, at most `max_rounds`."""
    # Epsilon grows with every round. A sigma from `noise_for` spends epsilon up to rounding.
    return bisect_right(
        range(1, max_rounds + 1),
        epsilon * (1 + 1e-9),
        key=lambda rounds: epsilon_spent(noise_multiplier, sampling_rate, rounds, delta),
    )


@lru_cache(maxsize=4096)
def _sampled(noise_multiplier: float, sampling_rate: float, rounds: int, delta: float) -> float:
    # From the identity, as the library's accountant composes, to give the same bits.
    start, losses = _round_losses(noise_multiplier, sampling_rate)
    return float(start.compose(losses.self_compose(rounds)).get_epsilon_for_delta(delta))


@lru_cache(maxsize=8)  # most of the seconds of `_sampled`, and the same in every round
def _round_losses(noise_multiplier: float, sampling_rate: float) -> tuple[Any, Any]:
    """Return the privacy loss distributions of no round and of one."""
    losses = _library().pld.privacy_loss_distribution
    neighbours = _library().NeighboringRelation.REPLACE_SPECIAL
    return losses.identity(), losses.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_rate, neighboring_relation=neighbours
    )


def _library() -> Any:
    # A client without differential privacy does not need to load it.
    import dp_accounting
    import dp_accounting.pld

    return dp_accounting


ACCOUNT = "privacy-account.json"


def epsilon_of(cost: float, delta: float) -> float:
    """Return the epsilon of answers with a sum of sigma^-2 of `cost`; 0 for none."""
    return epsilon_spent(1 / sqrt(cost), 1.0, 1, delta) if cost else 0.0


_EXPECTED = (
    "what this client has spent of its privacy; restore it from a copy. Without it nobody knows "
    "what was spent: delete it only to start from nothing"
)


class PrivacyAccount:
    """The account of one client in a file of its ledgers: run -> sum of sigma^-2 over its answers.

    A server that lies counts rounds wrong, or starts a run again. So a client records the cost of
    every answer, over all runs, before it sends it. Gaussian mechanisms of multipliers sigma_1,
    sigma_2, .. together are exactly one of multiplier (sum_i sigma_i^-2)^-1/2 (Dong, Roth and Su
    2022, corollary 3.3): one number per run is enough.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ACCOUNT

    def cost(self, run: str) -> float:
        """Return the sum of sigma^-2 of a run; 0 without an answer."""
        with ledger(self._path, {"runs": {}}, _costs, _EXPECTED) as account:
            return float(account["runs"].get(run, 0.0))

    def spend(
        self, run: str, noise_multiplier: float, allowed: Callable[[Mapping[str, float]], str]
    ) -> None:
        """Record an answer with noise sigma, before it is sent.

        Parameters
        ----------
        allowed : receives the account with this answer; returns the error, or ""

        Raises
        ------
        UserError : the answer is not allowed, and nothing was written; or the file is damaged
        """
        # Written first: a crash before the answer leaves costs budget, never privacy.
        with ledger(self._path, {"runs": {}}, _costs, _EXPECTED) as account:
            runs = account["runs"]
            # Squares of inverse multipliers add up over rounds and runs, epsilons do not.
            runs[run] = runs.get(run, 0.0) + noise_multiplier**-2
            if fault := allowed(runs):
                raise UserError(fault)


def _costs(content: Any) -> dict[str, dict[str, float]]:
    account = {str(run): float(cost) for run, cost in content["runs"].items()}
    # A negative cost would give budget back.
    if not all(isfinite(cost) and cost >= 0 for cost in account.values()):
        raise ValueError("costs that are not numbers from 0")
    return {"runs": account}
