"""The section `fedgvd.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGvdConfig(Section):
    """Keys of FedGVD."""

    name: ClassVar[str] = "fedgvd"
    teacher_steps: int = option(200, "training steps of the teacher", ge=1)
    steps: int = option(500, "condensation steps", ge=1)
    feature_rate: float = option(5e-3, "learning rate of Adam for the condensed features", gt=0)
    condensed_weight: float = option(
        1.0, "weight of a client's own condensed nodes in its loss (gamma)", ge=0
    )
    teaching_weight: float = option(
        1e-4, "weight of the squared distance to the server's logits (lambda)", ge=0
    )

    # Constants, not keys: no search and no experiment varies them.
    # Hidden width of the teacher, the linear network that guides the condensation.
    teacher_width: int = 256
    # Learning rate of Adam for the network that generates the adjacency.
    adjacency_rate: float = 1e-3
    align_weight: float = 10.0  # weight of the distance between class means and deviations
    smooth_weight: float = 0.1  # weight of the distance between linked condensed nodes
    server_epochs: int = 10  # training steps of the server's network per round
    server_rate: float = 0.01  # learning rate of Adam for the server's network
