"""The section `sfgc.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class SfgcConfig(Section):
    """Keys of trajectory matching."""

    name: ClassVar[str] = "sfgc"
    experts: int = option(5, "expert networks trained on the real graph (R)", ge=1)
    expert_rate: float = option(0.05, "learning rate of gradient descent for the experts", gt=0)
    latest_start: int = option(50, "last expert step from which a student may start", ge=0)
    span: int = option(50, "expert steps between the start of a student and its target", ge=1)
    steps: int = option(300, "matching steps (T)", ge=1)
    unroll: int = option(20, "training steps of the student (N)", ge=1)
    feature_rate: float = option(0.03, "learning rate of Adam for the condensed features", gt=0)

    # Constants, not keys: no search and no experiment varies them.
    # Initial learning rate of gradient descent for the student; it is learned.
    student_rate: float = 0.125
