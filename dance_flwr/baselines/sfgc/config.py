"""The section `sfgc.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class SfgcConfig(Section):
    """Keys of trajectory matching; the budget is the shared `condensation-ratio`."""

    name: ClassVar[str] = "sfgc"
    experts: int = option(5, "expert networks trained on the real graph (R)", least=1)
    expert_rate: float = option(0.05, "learning rate of gradient descent for the experts", above=0)
    latest_start: int = option(50, "last expert step from which a student may start", least=0)
    span: int = option(50, "expert steps between the start of a student and its target", least=1)
    steps: int = option(300, "matching steps (T)", least=1)
    unroll: int = option(20, "training steps of the student (N)", least=1)
    student_rate: float = option(
        0.125, "initial learning rate of gradient descent for the student; it is learned", above=0
    )
    feature_rate: float = option(0.03, "learning rate of Adam for the condensed features", above=0)
