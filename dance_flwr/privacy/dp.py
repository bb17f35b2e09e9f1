"""Differential privacy of whole clients, as a run's configuration asks for it.

Central (McMahan et al. 2018): the server adds noise of deviation sigma * C to the sum of clipped
updates. Distributed: each client adds its part of that noise before the masks, so that no one sees
a sum without it; the parts are sized for the fewest clients that a round can end with. Local: each
client adds all that it needs by itself. Adaptive clipping (Andrew et al. 2021) moves C towards a
quantile of the updates' norms, from a count that gets noise of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.privacy.accounting import epsilon_spent, noise_for, rounds_within
from dance_flwr.privacy.mechanism import LARGEST_DEVIATE, Draw, State, add_noise, clip
from dance_flwr.privacy.vectors import shares_needed


def samples_poisson(config: RunConfig) -> bool:
    """Whether clients are drawn one by one with probability `client-fraction`: the sampling the
    accounting knows.
    """
    return config.privacy.dp == "central" and config.client_fraction < 1


def draw_clients(nodes: Sequence[int], config: RunConfig, round_: int) -> list[int]:
    """Return the nodes drawn for a round, each with probability `client-fraction`, perhaps none."""
    draw = _draw(config, round_, -2).uniform(len(nodes))
    return [node for node, value in zip(nodes, draw, strict=True) if value < config.client_fraction]


@lru_cache(maxsize=16)
def noise_multiplier(config: RunConfig) -> float:
    """Return sigma: as configured, or the least that keeps all rounds within epsilon."""
    settings = config.privacy
    if settings.noise_multiplier:
        return settings.noise_multiplier
    return noise_for(settings.epsilon, settings.delta, config.rounds, config.client_fraction)


def spent(config: RunConfig, round_: int, repeats: int = 0) -> float | None:
    """Return epsilon after this round, None where the run has no differential privacy.

    Parameters
    ----------
    repeats : rounds that were asked twice, with other noise the second time; each counts as one
        more round
    """
    settings = config.privacy
    if settings.dp == "none":
        return None
    return epsilon_spent(
        noise_multiplier(config), config.client_fraction, round_ + repeats, settings.delta
    )


def repeats_cost(config: RunConfig) -> bool:
    """Whether a round that is asked twice draws other noise the second time, and so spends epsilon
    again.
    """
    return config.privacy.dp != "none" and not config.privacy.seeded


def affordable_rounds(config: RunConfig, repeats: int = 0) -> int:
    """Return how many of the run's rounds stay within epsilon.

    Parameters
    ----------
    repeats : rounds that were asked twice, as in `spent`

    Raises
    ------
    UserError : not even one does
    """
    settings = config.privacy
    if settings.dp == "none":
        return config.rounds
    sigma = noise_multiplier(config)
    most = config.rounds + repeats
    rounds = rounds_within(sigma, config.client_fraction, settings.epsilon, settings.delta, most)
    if not rounds:
        first = epsilon_spent(sigma, config.client_fraction, 1, settings.delta)
        raise UserError(
            f"privacy.epsilon: expected a budget for one round at least, found {settings.epsilon:g} where a round "
            f"spends {first:.3g}; raise privacy.noise-multiplier = {sigma:g} or privacy.epsilon"
        )
    return max(0, rounds - repeats)


def update_noise(config: RunConfig) -> float:
    """Return the multiplier of the noise on updates: sigma, or its part where the count of adaptive
    clipping has one.

    With the count's noise sigma_b = sigma the rest is (sigma^-2 - (2 sigma_b)^-2)^-1/2 = 2 sigma /
    sqrt(3): together they cost what sigma alone does (Andrew et al. 2021, theorem 1).
    """
    return noise_multiplier(config) * (
        2 / sqrt(3) if config.privacy.clipping == "adaptive" else 1.0
    )


def client_deviation(config: RunConfig, norm: float) -> float:
    """Return the deviation of the noise that one client adds to its update of norm up to C.

    Distributed: sigma * C / sqrt(f), f the fewest clients a round can end with, whose noise alone
    must suffice. Local: 2 sigma * C, as one update may take the place of any other.
    """
    scale = update_noise(config) * norm
    return {"distributed": scale / sqrt(fewest_clients(config)), "local": 2 * scale}.get(
        config.privacy.dp, 0.0
    )


def fewest_clients(config: RunConfig) -> int:
    """Return the fewest clients whose updates a round can end with."""
    asked = max(1, int(config.clients * config.client_fraction))
    if config.privacy.secure_aggregation:
        return shares_needed(asked, config.privacy.threshold)
    return config.min_valid_replies or asked


def update_bound(config: RunConfig, norm: float) -> float:
    """Return R: `update-range`, or under differential privacy what clipping and noise can reach and
    no more.
    """
    if config.privacy.dp == "none":
        return config.privacy.update_range
    return norm + LARGEST_DEVIATE * client_deviation(config, norm)


@dataclass(frozen=True)
class Upload:
    """What a client may upload.

    Attributes
    ----------
    state : clipped, and with the noise that the client must add itself
    unclipped : 1 where the update was within the norm, 0 where not, with noise under "distributed";
        None where nobody asks
    """

    state: State
    unclipped: float | None = None


def protect(
    state: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    config: RunConfig,
    *,
    norm: float,
    round_: int,
    client: int,
) -> Upload:
    """Return what a client may upload instead of `state`; as it is where the run has no
    differential privacy.
    """
    if config.privacy.dp == "none":
        return Upload(dict(state))
    made, was_clipped = clip(state, start, norm)
    draw, deviation = _draw(config, round_, client), client_deviation(config, norm)
    if deviation:
        made = add_noise(made, deviation, draw)
    if config.privacy.clipping == "fixed":
        return Upload(made)
    deviation = _bit_deviation(config)
    noise = deviation * float(draw.normal(1)[0]) if deviation else 0.0
    return Upload(made, float(not was_clipped) + noise + _lift(config))


def protect_mean(
    state: Mapping[str, Tensor], config: RunConfig, *, norm: float, round_: int, clients: int
) -> State:
    """Return the mean of `clients` clipped updates with the server's noise, deviation sigma * C /
    clients.
    """
    if config.privacy.dp != "central":
        return dict(state)
    return add_noise(state, update_noise(config) * norm / clients, _draw(config, round_, -1))


class ClippingNorm:
    """C of the round: fixed, or C <- C exp(-0.2 (b - quantile)) with b the noisy share of updates
    within C.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.value = config.privacy.clipping_norm

    def update(self, unclipped: float, clients: int, round_: int) -> None:
        """Take the sum of the clients' bits after a round."""
        settings = self._config.privacy
        count = unclipped - _lift(self._config) * clients
        if settings.dp == "central":
            count += noise_multiplier(self._config) * float(
                _draw(self._config, round_, -3).normal(1)[0]
            )
        share = min(1.0, max(0.0, count / clients))
        self.value *= exp(-0.2 * (share - settings.clipping_quantile))


def _bit_deviation(config: RunConfig) -> float:
    """Return the deviation of the noise that a client adds to its bit."""
    return (
        noise_multiplier(config) / sqrt(fewest_clients(config))
        if config.privacy.dp == "distributed"
        else 0.0
    )


def _lift(config: RunConfig) -> float:
    """Return what keeps a noisy bit above zero, where numbers under masks live."""
    return LARGEST_DEVIATE * _bit_deviation(config)


def _draw(config: RunConfig, round_: int, client: int) -> Draw:
    if config.privacy.seeded:
        return Draw.seeded(config.seed, "privacy", round_=round_, client=client)
    return Draw()
