"""The keys of fedtad, `fedtad.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedTadConfig(Section):
    """Keys of `fedtad`, `fedtad.*`; the values are those of its public code for every data set
    alike.
    """

    name: ClassVar[str] = "fedtad"
    reliability: str = option(
        "topology",
        "class-wise reliability of a client; count = labelled nodes, what the public code's comes down to",
        choices=("topology", "count"),
    )
    steps: int = option(5, "outer steps of distillation per round; 0 = FedAvg", least=0)
    generator_steps: int = option(1, "generator updates per outer step", least=0)
    model_steps: int = option(5, "updates of the global model per outer step", least=0)
    nodes: int = option(100, "nodes of the pseudo-graph (N)", least=1)
    noise_dim: int = option(32, "width of the generator's noise", least=1)
    neighbours: int = option(
        5, "nearest pseudo-nodes that are linked, the node itself among them", least=1
    )
    learning_rate: float = option(1e-3, "Adam learning rate of generator and global model", above=0)
    label_weight: float = option(
        1.0, "weight of the clients' cross-entropy in the generator's loss (lambda_1)", least=0
    )
    diversity_weight: float = option(
        1.0, "weight of diversity in the generator's loss (lambda_2)", least=0
    )
