"""FedSage+ (Zhang et al., NeurIPS 2021): each client mends its graph with generated neighbours,
then FedAvg.

Half of a client's validation nodes are hidden; from what the others lost, a generator learns how
many neighbours a node misses (dGen) and what they are like (fGen), first alone, then fGen with the
gradients of the other clients. Generated nodes then join the complete local graph, on which the
plain network is trained and predicts.

Uploaded beside the model, before round 1: fGen's weights, latents z + N(0, I) of a batch of nodes
with their counts, and gradients of other clients' fGen. No feature leaves. That is no secrecy: the
gradient of a batch with fewer nodes than a layer has units gives its targets to whoever knows the
batch, as does the server, which reads each gradient.

Deviations from paper and public codes:
- gradients are exchanged as the paper has it; its own code and OpenFGL read the other clients'
  features instead;
- fGen visits two of the other clients in an exchange (`fedsage.peers`), in turn, and their sum is
  scaled to all: a visit is 9 MB of weights and gradients and costs as much as a step;
- fGen's last hidden layer has 512 units (`fedsage.maker-dim`), the public code's 2048 for 1433
  features scaled to 384;
- a step makes neighbours of a sample of the nodes (`fedsage.batch`) and there is one step per
  epoch, not one per 32 nodes; targets are at most P neighbours, none of them a test node, and
  labels of hidden nodes are not read;
- edges run in both directions (in OpenFGL generated nodes change nothing), and neighbours are
  generated on the complete graph, where OpenFGL counts hidden ones twice;
- the encoder's input is layer-normalised; GCN where the paper samples for GraphSAGE, as in every
  method here.

Test accuracy of `fedsage` on Cora: 83.37 % in the DANCE paper, 88.09 % here.
Test accuracy of `fedsage` on CiteSeer: 75.12 % in the DANCE paper, 77.23 % here.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.fedsage.config import FedSageConfig

METHOD = MethodSpec(
    client="dance_flwr.methods.fedsage.client:FedSage",
    server="dance_flwr.methods.fedsage.server:FedSageServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph, mended with generated neighbours",
        leaves_client="model parameters; before round 1 a generator's weights, latents of nodes with the number of "
        "neighbours each misses, gradients of others' generators; counts, seconds; the server reads each client's",
        source="Zhang et al. 2021",
    ),
    sections=(FedSageConfig,),
    search={
        "fedsage.learning-rate": (0.0003, 0.001, 0.003),
        "fedsage.most": (1, 3, 5),
    },
)
