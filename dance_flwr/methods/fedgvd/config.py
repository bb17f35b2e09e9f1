"""The keys of fedgvd, `fedgvd.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGvdConfig(Section):
    """Keys of `fedgvd`, `fedgvd.*`; the budget is `condensation-ratio`, as everywhere."""

    name: ClassVar[str] = "fedgvd"
    teacher_width: int = option(
        256, "hidden width of the linear network that a client condenses by", least=1
    )
    teacher_steps: int = option(200, "training steps of that network", least=1)
    steps: int = option(500, "condensation steps", least=1)
    feature_rate: float = option(5e-3, "Adam learning rate of the condensed features", above=0)
    adjacency_rate: float = option(
        1e-3, "Adam learning rate of the network that makes the adjacency", above=0
    )
    align_weight: float = option(
        10.0, "weight of the distance of class means and deviations", least=0
    )
    smooth_weight: float = option(0.1, "weight of the distance of linked condensed nodes", least=0)
    server_epochs: int = option(10, "training steps of the server's network per round", least=0)
    server_rate: float = option(0.01, "Adam learning rate of the server's network", above=0)
    condensed_weight: float = option(
        1.0, "weight of a client's own condensed nodes in its loss (gamma)", least=0
    )
    teaching_weight: float = option(
        1e-4,
        "weight of the squared distance of a client's logits from the server's (lambda)",
        least=0,
    )
