"""The keys of sfgc, `sfgc.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class SfgcConfig(Section):
    """Keys of trajectory matching, `sfgc.*`; the budget is `condensation-ratio`, as everywhere."""

    name: ClassVar[str] = "sfgc"
    experts: int = option(5, "networks trained on the real graph (R)", least=1)
    expert_rate: float = option(0.05, "rate of their gradient descent", above=0)
    latest_start: int = option(50, "latest step of an expert that a student starts from", least=0)
    span: int = option(50, "steps of an expert from a student's start to its goal", least=1)
    steps: int = option(300, "matching steps (T)", least=1)
    unroll: int = option(20, "steps of the student (N)", least=1)
    student_rate: float = option(
        0.125, "first rate of the student's gradient descent; it is learnt", above=0
    )
    feature_rate: float = option(0.03, "Adam learning rate of the condensed features", above=0)
