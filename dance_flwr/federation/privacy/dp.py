"""Client-level differential privacy, as configured by `privacy.*`.

Central (McMahan et al. 2018): the server adds noise of deviation sigma * C to the sum of clipped
updates. Distributed (Kairouz et al. 2021): each client adds its share of that noise before masking,
as integers on the grid of the sum, so that nobody sees a sum without it; the shares suffice for the
smallest possible round. Local: each client adds all the noise for its own update. Adaptive clipping
(Andrew et al. 2021) moves C towards a quantile of the updates' norms, estimated from a noisy count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, isfinite, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from dance_flwr.config.sections import PrivacyConfig
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.accounting import epsilon_spent, noise_for, rounds_within
from dance_flwr.federation.privacy.clipping import State, clipped_update, updated
from dance_flwr.federation.privacy.noise import (
    MAX_DEVIATE,
    MAX_SIGMA,
    NoiseStream,
    discrete_gaussian,
)

# Why (decision 9): a sum of discrete Gaussians is one up to 10 exp(-pi^2 sigma^2) per entry and
# client, which at 8 steps is below 1e-200.
_MIN_SIGMA = 8


def samples_poisson(config: RunConfig) -> bool:
    """Whether each client is drawn with probability `client-fraction`, as accounting assumes."""
    return config.privacy.dp == "central" and config.client_fraction < 1


def draw_clients(nodes: Sequence[int], config: RunConfig, round_: int) -> list[int]:
    """Return the nodes drawn for a round, each with probability `client-fraction`; may be empty."""
    draw = _draw(config, round_, -2).uniform(len(nodes))
    return [node for node, value in zip(nodes, draw, strict=True) if value < config.client_fraction]


@lru_cache(maxsize=16)
def noise_multiplier(config: RunConfig) -> float:
    """Return sigma: as configured, or the smallest that keeps all rounds within epsilon."""
    settings = config.privacy
    if settings.noise_multiplier:
        return settings.noise_multiplier
    return noise_for(settings.epsilon, settings.delta, config.rounds, config.client_fraction)


def spent_epsilon(config: RunConfig, round_: int, repeats: int = 0) -> float | None:
    """Return epsilon after this round; None without differential privacy.

    Parameters
    ----------
    repeats : number of repeated rounds, with fresh noise; each counts as one more round
    """
    settings = config.privacy
    if settings.dp == "none":
        return None
    return epsilon_spent(
        noise_multiplier(config), config.client_fraction, round_ + repeats, settings.delta
    )


def repeats_cost(privacy: PrivacyConfig) -> bool:
    """Whether a repeated round draws fresh noise, and so spends epsilon again."""
    # Why (decision 10): a server may have seen the noisy sum of either try.
    return privacy.dp != "none" and not privacy.seeded


def affordable_rounds(config: RunConfig, repeats: int = 0) -> int:
    """Return the number of the run's rounds within epsilon.

    Raises
    ------
    UserError : one round exceeds epsilon
    """
    settings = config.privacy
    if settings.dp == "none":
        return config.rounds
    sigma = noise_multiplier(config)
    last = config.rounds + repeats
    rounds = rounds_within(sigma, config.client_fraction, settings.epsilon, settings.delta, last)
    if not rounds:
        first = epsilon_spent(sigma, config.client_fraction, 1, settings.delta)
        raise UserError(
            "privacy.epsilon: expected a budget for one round at least, found "
            f"{settings.epsilon:g} where a round spends {first:.3g}; raise "
            f"privacy.noise-multiplier = {sigma:g} or privacy.epsilon"
        )
    return max(0, rounds - repeats)


def update_noise(config: RunConfig) -> float:
    """Return the multiplier of the noise on updates: sigma, or more under adaptive clipping.

    With noise sigma_b = sigma on the count, updates need (sigma^-2 - (2 sigma_b)^-2)^-1/2 = 2 sigma
    / sqrt(3): together they cost as much as sigma alone (Andrew et al. 2021, theorem 1).
    """
    return noise_multiplier(config) * (
        2 / sqrt(3) if config.privacy.clipping == "adaptive" else 1.0
    )


def client_deviation(config: RunConfig, norm: float) -> float:
    """Return the standard deviation of the noise of one client on its update of norm up to C.

    Distributed: sigma * C / sqrt(f) with f = `fewest_clients`, whose noise alone must suffice.
    Local: 2 sigma * C, since one update may replace any other.
    """
    scale = update_noise(config) * norm
    # Why (decision 9): distributed noise is for the smallest sum that can be read; larger sums have
    # more noise than epsilon needs.
    return {"distributed": scale / sqrt(fewest_clients(config)), "local": 2 * scale}.get(
        config.privacy.dp, 0.0
    )


def shares_needed(clients: int, ratio: float) -> int:
    """Return ceil(ratio * M), but more than half: two disjoint groups must not both unmask."""
    # Rounded first, as 0.55 * 100 is more than 55 in float64.
    return max(ceil(round(ratio * clients, 9)), clients // 2 + 1)


def fewest_clients(config: RunConfig) -> int:
    """Return the smallest number of clients whose updates a round can end with."""
    sampled = max(1, int(config.clients * config.client_fraction))
    if config.privacy.secure_aggregation:
        return shares_needed(sampled, config.privacy.threshold)
    return quorum(config, sampled)


def update_bound(config: RunConfig, norm: float) -> float:
    """Return R: `update-range`, or the largest value after clipping and noise."""
    if config.privacy.dp == "none":
        return config.privacy.update_range
    # Why (decision 9): deviates are bounded, so that nothing is clipped after the noise.
    return norm + MAX_DEVIATE * client_deviation(config, norm)


class ProtectedUpload(NamedTuple):
    """A clipped and noisy upload.

    Attributes
    ----------
    state : the clipped model with the client's noise, or its update in int64 steps of a masked sum
    unclipped : 1 if the update was within the norm, else 0, with noise under "distributed"; None
        without adaptive clipping
    """

    state: State
    unclipped: float | None = None


@dataclass(frozen=True)
class ClientMechanism:
    """The mechanism of differential privacy for the upload of one client in one round.

    Attributes
    ----------
    norm : C
    round : t, from 1
    client : its number
    step : change of a weight per step of a masked sum; None = upload a model
    """

    config: RunConfig
    norm: float
    round: int
    client: int
    step: float | None = None

    def protect(self, state: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> ProtectedUpload:
        """Return the upload for `state`, which is unchanged without privacy."""
        config, settings = self.config, self.config.privacy
        if settings.dp == "none":
            return ProtectedUpload(dict(state))
        change, was_clipped = clipped_update(state, start, self.norm)
        draw = _draw(config, self.round, self.client)
        deviation = client_deviation(config, self.norm)
        if self.step is not None:
            upload = _noisy_steps(change, start, self.step, deviation, draw)
        else:
            # Noise before rounding to float32: with large weights of the server, rounding makes a
            # clipped update up to twice as long.
            noisy = add_noise(change, deviation, draw) if deviation else change
            upload = updated(start, noisy)
        if settings.clipping == "fixed":
            return ProtectedUpload(upload)
        deviation = _bit_deviation(config)
        noise = deviation * float(draw.normal(1)[0]) if deviation else 0.0
        return ProtectedUpload(upload, float(not was_clipped) + noise + _lift(config))


def _noisy_steps(
    change: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    step: float,
    deviation: float,
    draw: NoiseStream,
) -> State:
    """Return a clipped update in steps, rounded towards zero, plus integer noise."""
    if not (isfinite(step) and step > 0):
        raise UserError(f"secure aggregation: expected a step above 0 of its sum, found {step:g}")
    sigma = max(ceil(deviation / step), _MIN_SIGMA)
    if sigma > MAX_SIGMA:
        raise UserError(
            f"secure aggregation: expected noise of at most {MAX_SIGMA} steps of the sum, "
            f"found {sigma}; this client does not take part"
        )
    steps = {name: torch.zeros(t.shape, dtype=torch.int64) for name, t in start.items()}
    for name, part in change.items():
        noise = torch.from_numpy(discrete_gaussian(part.numel(), sigma, draw))
        steps[name] = (part / step).trunc().to(torch.int64) + noise.view(part.shape)
    return steps


def protect_mean(
    state: Mapping[str, Tensor], config: RunConfig, *, norm: float, round_: int, clients: int
) -> State:
    """Add the server's noise to a mean of clipped updates: deviation sigma * C / clients."""
    if config.privacy.dp != "central":
        return dict(state)
    return add_noise(state, update_noise(config) * norm / clients, _draw(config, round_, -1))


class ClippingNorm:
    """The clipping norm C of the round: fixed, or C <- C exp(-0.2 (b - quantile)).

    b is the noisy share of updates within C.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.value = config.privacy.clipping_norm

    def update(self, unclipped: float, clients: int, round_: int) -> None:
        """Update C with the sum of the clients' bits after a round."""
        settings = self._config.privacy
        count = unclipped - _lift(self._config) * clients
        if settings.dp == "central":
            count += noise_multiplier(self._config) * float(
                _draw(self._config, round_, -3).normal(1)[0]
            )
        # The noisy count may be outside 0 to M; the rate 0.2 is that of Andrew et al. 2021.
        share = min(1.0, max(0.0, count / clients))
        self.value *= exp(-0.2 * (share - settings.clipping_quantile))


def _bit_deviation(config: RunConfig) -> float:
    return (
        noise_multiplier(config) / sqrt(fewest_clients(config))
        if config.privacy.dp == "distributed"
        else 0.0
    )


def _lift(config: RunConfig) -> float:
    """Return the offset that keeps a noisy bit positive: masked numbers cannot be negative."""
    return MAX_DEVIATE * _bit_deviation(config)


def _draw(config: RunConfig, round_: int, client: int) -> NoiseStream:
    if config.privacy.seeded:
        return NoiseStream.seeded(config.seed, "privacy", round_=round_, client=client)
    return NoiseStream()


def add_noise(state: Mapping[str, Tensor], deviation: float, draw: NoiseStream) -> State:
    """Add independent Gaussian noise of this standard deviation to every float entry."""
    return {
        name: tensor
        + torch.from_numpy(deviation * draw.normal(tensor.numel()))
        .view(tensor.shape)
        .to(tensor.dtype)
        # Integer buffers need no noise: `clip` returns those of the received model.
        if tensor.is_floating_point()
        else tensor
        for name, tensor in state.items()
    }
