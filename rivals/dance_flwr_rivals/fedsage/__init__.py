"""FedSage+: each client augments its graph with generated neighbours, then FedAvg.

Zhang, Yang, Li, Sun and Yiu, "Subgraph Federated Learning with Missing Neighbor Generation",
NeurIPS 2021. Half of a client's validation nodes are hidden. From the neighbours that the others
lost, a neighbour generator (NeighGen) learns how many neighbours a node misses (dGen) and their
features (fGen): first alone, then fGen also with the cross gradients of other clients. Generated
nodes augment the complete local graph, on which the plain network is trained and predicts.

Uplink: the model; before round 1 also fGen's weights, latents z + N(0, I) of a batch of nodes with
their counts, and gradients of other clients' fGen. No feature leaves a client. That is no secrecy:
the gradient of a batch with fewer nodes than a layer has units reveals its targets to anyone who
knows the batch, and the server, which reads each gradient, does.

Deviations from the paper and the public codes:

- clients exchange gradients, as in the paper; its own code and OpenFGL read the other clients'
  features instead;
- fGen visits two of the other clients in an exchange (`fedsage.peers`), in turn, and the sum of
  their gradients is scaled to all: a visit takes 9 MB of weights and gradients and costs as much
  as a training step;
- fGen's last hidden layer has 512 units (`fedsage.maker-dim`): the public code's 2048 for 1433
  features, scaled to 384;
- a training step generates neighbours for a sample of 32 nodes, and an epoch
  has one step, not one per 32 nodes; targets are at most P neighbours, none of them a test node;
  labels of hidden nodes are not read;
- generated edges run in both directions (in OpenFGL generated nodes change nothing), and
  neighbours are generated on the complete graph, where OpenFGL counts hidden ones twice;
- the encoder's input is layer-normalised; GCN as in every method here, where the paper samples for
  GraphSAGE.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


@dataclass(frozen=True)
class FedSageConfig(Section):
    """Keys of FedSage+; defaults of its public code where it has one."""

    name: ClassVar[str] = "fedsage"
    # The public code's P.
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
    # A visit takes 9 MB of weights and gradients, and costs as much as a training step.
    peers: int = option(2, "clients visited per exchange, in turn; 0 = all others", ge=0)
    learning_rate: float = option(1e-3, "learning rate of Adam for the generator", gt=0)
    latent_dim: int = option(128, "width of the latent node embeddings", ge=1)
    # 2048 units for 1433 features in the public code, scaled to the width of texts.
    maker_dim: int = option(512, "width of the last hidden layer of the feature generator", ge=1)

    # Constants, not keys: those of the public code, which no experiment varies.
    batch: int = 32  # nodes per training step for which neighbours are generated
    weight_decay: float = 1e-4  # weight decay of Adam for the generator
    count_weight: float = 1.0  # weight of the loss on the number of missing neighbours (a)
    feature_weight: float = 1.0  # weight of the loss on their features (b)
    class_weight: float = 1.0  # weight of the cross-entropy on the augmented graph (c)


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedsage.client:FedSage",
    server="dance_flwr_rivals.fedsage.server:FedSageServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph, "
        "augmented with generated neighbours",
        leaves_client="model parameters; before round 1 a generator's weights, latents of nodes "
        "with the number of neighbours each misses, gradients of others' generators; counts, "
        "seconds; the server reads each client's",
        source="Zhang et al. 2021",
    ),
    sections=(FedSageConfig, SamplingConfig),
    search={
        "fedsage.learning-rate": (0.0003, 0.001, 0.003),
        "fedsage.max-generated-per-node": (1, 3, 5),
    },
    label_reuse=True,
)
