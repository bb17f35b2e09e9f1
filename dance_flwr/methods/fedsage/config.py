"""The keys of fedsage, `fedsage.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedSageConfig(Section):
    """Keys of `fedsage`, `fedsage.*`; the values are those of its public code where it gives one."""

    name: ClassVar[str] = "fedsage"
    most: int = option(
        5, "generated neighbours of a node at most (P); 0 = FedAvg", least=0, most=20
    )
    hidden_share: float = option(
        0.5,
        "share of the validation nodes that are hidden while the generator learns",
        least=0,
        most=1,
    )
    steps: int = option(20, "steps of the generator at each client alone", least=0)
    exchanges: int = option(
        10, "steps of the generator with gradients of other clients; 0 = none", least=0
    )
    peers: int = option(
        2, "other clients that a generator is sent to in an exchange, in turn; 0 = all", least=0
    )
    batch: int = option(32, "nodes that the generator makes neighbours of in a step", least=1)
    learning_rate: float = option(1e-3, "Adam learning rate of the generator", above=0)
    weight_decay: float = option(1e-4, "Adam weight decay of the generator", least=0)
    latent_dim: int = option(128, "width of the latents of nodes", least=1)
    maker_dim: int = option(512, "width of the last hidden layer of the feature generator", least=1)
    count_weight: float = option(
        1.0, "weight of the number of missing neighbours in the loss (a)", least=0
    )
    feature_weight: float = option(1.0, "weight of their features in the loss (b)", least=0)
    class_weight: float = option(
        1.0, "weight of the cross-entropy on the mended graph in the loss (c)", least=0
    )
