"""The section `fedtad.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedTadConfig(Section):
    """Keys of FedTAD; defaults are those of its public code, the same for all data sets."""

    name: ClassVar[str] = "fedtad"
    reliability: str = option(
        "topology",
        "class-wise reliability of a client; count = its labelled nodes, to which the public "
        "code reduces",
        choices=("topology", "count"),
    )
    steps: int = option(5, "outer steps of the distillation per round; 0 = FedAvg", least=0)
    generator_steps: int = option(1, "updates of the generator per outer step", least=0)
    model_steps: int = option(5, "updates of the global model per outer step", least=0)
    nodes: int = option(100, "nodes of the pseudo-graph (N)", least=1)
    noise_dim: int = option(32, "width of the generator's noise", least=1)
    neighbours: int = option(
        5, "nearest pseudo-nodes linked to each node, including itself", least=1
    )
    learning_rate: float = option(
        1e-3, "learning rate of Adam for the generator and the global model", above=0
    )
    label_weight: float = option(
        1.0, "weight of the clients' cross-entropy in the generator's loss (lambda_1)", least=0
    )
    diversity_weight: float = option(
        1.0, "weight of the diversity term in the generator's loss (lambda_2)", least=0
    )
