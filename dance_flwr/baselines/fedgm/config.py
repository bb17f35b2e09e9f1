"""The section `fedgm.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGmConfig(Section):
    """Keys of FedGM."""

    name: ClassVar[str] = "fedgm"
    feature_rate: float = option(
        0.01, "learning rate of Adam for the condensed features at the server", gt=0
    )
    train_every: int = option(
        10, "rounds between trainings of the deployed network at the server", ge=1
    )
    train_steps: int = option(50, "steps of each such training, which starts from scratch", ge=1)
