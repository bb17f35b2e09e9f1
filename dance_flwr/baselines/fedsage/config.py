"""The section `fedsage.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedSageConfig(Section):
    """Keys of FedSage+; defaults are those of its public code where it has one."""

    name: ClassVar[str] = "fedsage"
    most: int = option(
        5, "maximum number of generated neighbours per node (P); 0 = FedAvg", least=0, most=20
    )
    hidden_share: float = option(
        0.5,
        "share of the validation nodes hidden while the generator is trained",
        least=0,
        most=1,
    )
    steps: int = option(20, "training steps of the generator on each client alone", least=0)
    exchanges: int = option(
        10, "training steps of the generator with gradients from other clients; 0 = none", least=0
    )
    peers: int = option(
        2, "clients that a generator visits per exchange, in turn; 0 = all others", least=0
    )
    batch: int = option(32, "nodes per training step for which neighbours are generated", least=1)
    learning_rate: float = option(1e-3, "learning rate of Adam for the generator", above=0)
    weight_decay: float = option(1e-4, "weight decay of Adam for the generator", least=0)
    latent_dim: int = option(128, "width of the latent node embeddings", least=1)
    maker_dim: int = option(512, "width of the last hidden layer of the feature generator", least=1)
    count_weight: float = option(
        1.0, "weight of the loss on the number of missing neighbours (a)", least=0
    )
    feature_weight: float = option(1.0, "weight of the loss on their features (b)", least=0)
    class_weight: float = option(
        1.0, "weight of the cross-entropy on the augmented graph (c)", least=0
    )
