"""The section `fedgvd.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGvdConfig(Section):
    """Keys of FedGVD; the budget is the shared `condensation-ratio`."""

    name: ClassVar[str] = "fedgvd"
    teacher_width: int = option(
        256, "hidden width of the teacher, the linear network that guides the condensation", least=1
    )
    teacher_steps: int = option(200, "training steps of the teacher", least=1)
    steps: int = option(500, "condensation steps", least=1)
    feature_rate: float = option(5e-3, "learning rate of Adam for the condensed features", above=0)
    adjacency_rate: float = option(
        1e-3, "learning rate of Adam for the network that generates the adjacency", above=0
    )
    align_weight: float = option(
        10.0, "weight of the distance between class means and deviations", least=0
    )
    smooth_weight: float = option(
        0.1, "weight of the distance between linked condensed nodes", least=0
    )
    server_epochs: int = option(10, "training steps of the server's network per round", least=0)
    server_rate: float = option(0.01, "learning rate of Adam for the server's network", above=0)
    condensed_weight: float = option(
        1.0, "weight of a client's own condensed nodes in its loss (gamma)", least=0
    )
    teaching_weight: float = option(
        1e-4,
        "weight of the squared distance between a client's logits and the server's (lambda)",
        least=0,
    )
