"""The section `self-training.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class SelfTrainingConfig(Section):
    """Keys of self-training."""

    name: ClassVar[str] = "self-training"
    start_round: int = option(20, "first round with pseudo-labels", ge=1)
    confidence: float = option(
        0.9, "minimum confidence of a pseudo-label under the global model", ge=0, le=1
    )
    weight: float = option(1.0, "weight of the cross-entropy of pseudo-labelled nodes", ge=0)
    per_class: int = option(
        0, "most confident pseudo-labels per client and class; 0 = all above the threshold", ge=0
    )
