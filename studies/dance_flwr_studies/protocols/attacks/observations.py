"""What a server has of each client after a round: uploads and means, clear or under noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.federation.privacy.dp import ClientMechanism, spent_epsilon
from dance_flwr.seeding import derive

DRAWS = 5  # of the noise; one draw moves a correlation over few clients and classes by chance
OWN, MEAN, OTHER = "own upload", "mean of all clients", "another client's upload"
# Noise: the two budgets of a run, and multipliers far too small for one, to show where the attacks
# begin to succeed.
LEVELS: dict[str, dict[str, Value]] = {
    "sigma 0.01": {"privacy.noise-multiplier": 0.01},
    "sigma 0.1": {"privacy.noise-multiplier": 0.1},
    "epsilon 50": {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 50.0},
    "epsilon 8": {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 8.0},
}

State = dict[str, Tensor]


@dataclass(frozen=True)
class Observation:
    """What the server has of each client after a round.

    Attributes
    ----------
    name : of the line; epsilon : of the whole run
    draws : [M] models per draw of the noise, the same one for all clients where it is a mean
    """

    name: str
    draws: Sequence[Sequence[State]]
    epsilon: float | None = None


def observations(
    start: Mapping[str, Tensor],
    uploads: Sequence[State],
    weights: Sequence[float],
    config: RunConfig,
    round_: int,
) -> Iterator[Observation]:
    """Yield every observation: uploads and means, in the clear and under clipping and noise.

    As a control, each client is also attacked with the upload of the next one, which never saw its
    nodes. Rounding to the grid of secure aggregation, 2^-27 of the bound, is omitted.
    """
    yield Observation(OWN, [uploads])
    yield Observation(MEAN, [[mean_state(uploads, weights)] * len(uploads)])
    yield Observation(OTHER, [[*uploads[1:], *uploads[:1]]])
    for dp, name in (("local", OWN), ("distributed", MEAN)):
        for level, values in LEVELS.items():
            private = with_privacy(config, dp, values)
            seeds = [
                # A stream for each level and draw, so that no two share their noise.
                derive(config.seed, f"attack-noise {dp} {level} {draw}", round_=round_)
                for draw in range(DRAWS)
            ]
            draws = [_noisy(start, uploads, replace(private, seed=seed), round_) for seed in seeds]
            yield Observation(
                f"{name}, {dp} {level}", draws, spent_epsilon(private, private.rounds)
            )


def _noisy(
    start: Mapping[str, Tensor], uploads: Sequence[State], private: RunConfig, round_: int
) -> Sequence[State]:
    norm = private.privacy.clipping_norm
    states: list[State] = [
        ClientMechanism(private, norm, round_, client).protect(upload, start).state
        for client, upload in enumerate(uploads)
    ]
    if private.privacy.dp == "local":
        return states
    return [mean_state(states, [1.0] * len(states))] * len(states)


def with_privacy(config: RunConfig, dp: str, level: Mapping[str, Value]) -> RunConfig:
    """Return the configuration under this differential privacy, with noise from the run's seed."""
    # Why seeded (decision 9): a study must be repeatable. The epsilon of such a run is void.
    values: dict[str, Value] = {"privacy.dp": dp, "privacy.seeded": True}
    values["privacy.secure-aggregation"] = dp == "distributed"
    return parse(flatten(config) | values | dict(level))


def mean_state(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> State:
    """Return sum_k w_k omega_k / sum_k w_k, with the types of the first state."""
    total = sum(weights)
    return {
        name: sum(
            (
                state[name].double() * (weight / total)
                for state, weight in zip(states, weights, strict=True)
            ),
            torch.zeros(()),
        ).to(value.dtype)
        for name, value in states[0].items()
    }
