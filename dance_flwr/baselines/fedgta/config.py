"""The section `fedgta.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGtaConfig(Section):
    """Keys of FedGTA; defaults of its public code."""

    name: ClassVar[str] = "fedgta"
    moments: int = option(10, "maximum order of the moments of the soft labels (P)", ge=1, le=50)
    kind: str = option(
        "hybrid",
        "moments to compare; hybrid = raw and central",
        choices=("raw", "central", "hybrid"),
    )
    epsilon: float = option(
        0.5, "clients are averaged if the cosine of their moments is above this", ge=-1, le=1
    )
    steps: int = option(5, "steps of label propagation", ge=0)

    # Constants, not keys: those of the public code, which no experiment varies.
    alpha: float = 0.5  # weight of the neighbours in each step of label propagation
    # Temperature of the soft labels from which the confidence is computed.
    temperature: float = 20.0
