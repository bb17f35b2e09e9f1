"""FedGTA: topology-aware averaging by moments of propagated soft labels.

Li, Wu, Zhang, Zhu, Li and Wang, "FedGTA: Topology-aware Averaging for Federated Graph Learning",
PVLDB 17(1), 2023; public code at xkLi-Allen/FedGTA f8f6828. Each client gets a model of its own:
the mean over the clients whose moments M are similar to its own, weighted by their confidence H.
That personalised mean is evaluated.

Uplink: in every round the model, M (up to 2 P C floats) and H (1 float). The server reads single
uploads, and M reveals the distribution of a client's labels.

Deviations from the paper: the backbone is the harness's own, GCN by default, where the paper's
figures are of GAMLP; in every step of propagation the labels of training rows are added again, as
in the public code. From the public code: cosines are compared with epsilon, and the client itself
is always included; order P and epsilon are the same for all data sets, 10 and 0.5, until tuned.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


@dataclass(frozen=True)
class FedGtaConfig(Section):
    """Keys of FedGTA; defaults of its public code."""

    name: ClassVar[str] = "fedgta"
    # OpenFGL's values for every data set; a search takes others.
    moments: int = option(10, "maximum order of the moments of the soft labels (P)", ge=1, le=50)
    epsilon: float = option(
        0.5, "clients are averaged if the cosine of their moments is above this", ge=-1, le=1
    )
    steps: int = option(5, "steps of label propagation", ge=0)

    # Constants, not keys: those of the public code, which no experiment varies.
    alpha: float = 0.5  # weight of the neighbours in each step of label propagation
    # Temperature of the soft labels from which the confidence is computed.
    temperature: float = 20.0


METHOD = MethodSpec(
    client="dance_flwr_rivals.fedgta.client:FedGta",
    server="dance_flwr_rivals.fedgta.server:FedGtaServer",
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters; moments and confidence of its soft labels, which reveal "
        "its label distribution; counts, seconds; the server reads each client's",
        source="Li et al. 2023, arXiv 2401.11755",
        evaluation="personalised",
    ),
    sections=(FedGtaConfig, SamplingConfig),
    search={
        # With 0.5 most pairs of clients are similar on Cora and CiteSeer, and FedGTA is FedAvg with
        # other weights. Why (decision 11): the threshold is searched like everything else.
        "fedgta.epsilon": (0.5, 0.65, 0.8, 0.95),
        "fedgta.moments": (3, 6, 10, 20),
    },
    label_reuse=True,
)
