"""The keys of fedgta, `fedgta.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedGtaConfig(Section):
    """Keys of `fedgta`, `fedgta.*`; the values are those of its public code for every data set
    alike.
    """

    name: ClassVar[str] = "fedgta"
    moments: int = option(
        10, "highest order of the moments of the soft labels (P)", least=1, most=50
    )
    kind: str = option(
        "hybrid",
        "moments that are compared; hybrid = raw and central",
        choices=("raw", "central", "hybrid"),
    )
    epsilon: float = option(
        0.5, "clients whose moments have a cosine above this are averaged", least=-1, most=1
    )
    steps: int = option(5, "steps of label propagation", least=0)
    alpha: float = option(
        0.5, "share of the neighbours in a step of label propagation", least=0, most=1
    )
    temperature: float = option(
        20.0, "temperature of the soft labels that confidence is taken of", above=0
    )
