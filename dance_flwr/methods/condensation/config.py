"""The section `condense.*`: how a condensation baseline learns its synthetic graph."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class CondenseConfig(Section):
    """Keys of gradient matching, `condense.*`; the budget is `condensation-ratio`, for every method
    alike.
    """

    name: ClassVar[str] = "condense"
    steps: int = option(500, "matching epochs, each with a fresh network (T)", least=1)
    outer: int = option(1, "matching steps per epoch; 1 = one-step matching", least=1)
    inner: int = option(
        0, "training steps of the network on the condensed graph between two of them", least=0
    )
    feature_rate: float = option(0.01, "Adam learning rate of the condensed features", above=0)
    adjacency_rate: float = option(
        0.01, "Adam learning rate of the network that makes the adjacency", above=0
    )
    distance: str = option(
        "mse",
        "distance of two gradients; ours = cosine by column, the public code's; mse = squared; cos = one cosine",
        choices=("ours", "mse", "cos"),
    )
    released_code: bool = option(
        False,
        "gcond: labels by class frequency but features by class number, the public code's mismatch",
    )
