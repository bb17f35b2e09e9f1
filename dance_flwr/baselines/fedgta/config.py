"""The section `fedgta.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGtaConfig(Section):
    """Keys of FedGTA; defaults are those of its public code, the same for all data sets."""

    name: ClassVar[str] = "fedgta"
    moments: int = option(
        10, "maximum order of the moments of the soft labels (P)", least=1, most=50
    )
    kind: str = option(
        "hybrid",
        "moments to compare; hybrid = raw and central",
        choices=("raw", "central", "hybrid"),
    )
    epsilon: float = option(
        0.5, "clients are averaged if the cosine of their moments is above this", least=-1, most=1
    )
    steps: int = option(5, "steps of label propagation", least=0)
    alpha: float = option(
        0.5, "weight of the neighbours in each step of label propagation", least=0, most=1
    )
    temperature: float = option(
        20.0, "temperature of the soft labels from which the confidence is computed", above=0
    )
