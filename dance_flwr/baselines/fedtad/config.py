"""The section `fedtad.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedTadConfig(Section):
    """Keys of FedTAD; defaults of its public code."""

    name: ClassVar[str] = "fedtad"
    reliability: str = option(
        "topology",
        "class-wise reliability of a client; count = its labelled nodes, as in the public code",
        choices=("topology", "count"),
    )
    steps: int = option(5, "outer steps of the distillation per round; 0 = FedAvg", ge=0)
    nodes: int = option(100, "nodes of the pseudo-graph (N)", ge=1)
    learning_rate: float = option(
        1e-3, "learning rate of Adam for the generator and the global model", gt=0
    )

    # Constants, not keys: those of the public code, which no experiment varies.
    generator_steps: int = 1  # updates of the generator per outer step
    model_steps: int = 5  # updates of the global model per outer step
    noise_dim: int = 32  # width of the generator's noise
    neighbours: int = 5  # nearest pseudo-nodes linked to each node, including itself
    # Weight of the clients' cross-entropy in the generator's loss (lambda_1).
    label_weight: float = 1.0
    diversity_weight: float = 1.0  # weight of the diversity term in the generator's loss (lambda_2)
