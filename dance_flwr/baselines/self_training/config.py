"""The section `self-training.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class SelfTrainingConfig(Section):
    """Keys of self-training."""

    name: ClassVar[str] = "self-training"
    start_round: int = option(20, "first round with pseudo-labels", least=1)
    confidence: float = option(
        0.9, "minimum confidence of a pseudo-label under the global model", least=0, most=1
    )
    weight: float = option(1.0, "weight of the cross-entropy of pseudo-labelled nodes", least=0)
    per_class: int = option(
        0,
        "pseudo-labels per client and class, the most confident ones; 0 = all above the threshold",
        least=0,
    )
