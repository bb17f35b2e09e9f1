"""The section `fedsage.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class FedSageConfig(Section):
    """Keys of FedSage+; defaults of its public code where it has one."""

    name: ClassVar[str] = "fedsage"
    max_generated_per_node: int = option(
        5, "maximum number of generated neighbours per node (P); 0 = FedAvg", ge=0, le=20
    )
    hidden_ratio_of_val_nodes: float = option(
        0.5, "share of the validation nodes hidden while the generator is trained", ge=0, le=1
    )
    steps: int = option(20, "training steps of the generator on each client alone", ge=0)
    exchanges: int = option(
        10, "steps of the generator with gradients of other clients; 0 = none", ge=0
    )
    peers: int = option(2, "clients visited per exchange, in turn; 0 = all others", ge=0)
    learning_rate: float = option(1e-3, "learning rate of Adam for the generator", gt=0)
    latent_dim: int = option(128, "width of the latent node embeddings", ge=1)
    maker_dim: int = option(512, "width of the last hidden layer of the feature generator", ge=1)

    # Constants, not keys: those of the public code, which no experiment varies.
    batch: int = 32  # nodes per training step for which neighbours are generated
    weight_decay: float = 1e-4  # weight decay of Adam for the generator
    count_weight: float = 1.0  # weight of the loss on the number of missing neighbours (a)
    feature_weight: float = 1.0  # weight of the loss on their features (b)
    class_weight: float = 1.0  # weight of the cross-entropy on the augmented graph (c)
