"""Methods that train the plain network on full local graphs: their specs.

fedavg-full : McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-Efficient Learning
    of Deep Networks from Decentralized Data", AISTATS 2017, with the GCN of Kipf and Welling, ICLR
    2017. Each client trains backbone and head on all its labelled training nodes. The reference.

fedavg-rotating : a control of condensation. In each round a client draws labelled training nodes,
    uniformly and without repetition: `rotating.supervised-ratio` times its budget K = ceil(r |V|).
    The loss covers these alone, on the full local graph. Nothing is selected, stored or condensed.
    By default a round supervises 2.25 K nodes, about as many as DANCE at r = 8 %, where labelled
    evidence joins the core; with ratio 1 it supervises K.

local-only : training in isolation, the lower bound. The server stores each client's model and
    returns it to that client only, so that rounds, validation, best round and resumption work as
    for every other method; nothing of one client reaches another.

fedper : Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization
    Layers", arXiv 1912.00818, 2019. theta is the backbone, phi_k the linear head of client k,
    trained together:

        (theta_k, phi_k) from minimising F_k(theta, phi_k),  theta <- sum_k w_k theta_k / sum_k w_k.

    Deviation: an upload holds the untrained head, as received, so that it has the names of every
    model.

ditto : Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through
    Personalization", ICML 2021. The global model w is that of FedAvg, bit by bit; in every round
    client k also trains, from its last v_k,

        v_k <- argmin F_k(v) + (mu / 2) ||v - w^(t-1)||^2  for as many local epochs.

FedPer and Ditto keep a part of the model, or a second model, in the client's folder, average it
over rounds as the server averages models (`ema-decay`), and are scored with it.

Uplink: the model. The server needs only the weighted mean; for local-only it stores each model for
its client alone. Deviation of all: Adam, with fresh moments in each round, where the papers use
plain gradient descent. The initial model is the same at all clients.
"""

from dataclasses import dataclass, replace

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


@dataclass(frozen=True)
class RotatingConfig(Section):
    """Keys of fedavg-rotating."""

    name = "rotating"
    # About what DANCE supervises at 8 %, since labelled evidence joins its core.
    supervised_ratio: float = option(
        2.25, "labelled nodes supervised per round, as a multiple of the condensed nodes (K)", gt=0
    )


@dataclass(frozen=True)
class DittoConfig(Section):
    """Keys of Ditto."""

    name = "ditto"
    mu: float = option(
        0.1, "weight of the proximal term of the personal model; 0 = trained alone", ge=0
    )


FEDAVG_FULL = MethodSpec(
    client="dance_flwr.methods.whole_graph:FedAvgFull",
    sections=(SamplingConfig,),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters, counts, seconds",
        source="McMahan et al. 2017; Kipf and Welling 2017",
    ),
    label_reuse=True,
)
FEDAVG_ROTATING = MethodSpec(
    client="dance_flwr.methods.rotating:FedAvgRotating",
    sections=(RotatingConfig, SamplingConfig),
    card=replace(
        FEDAVG_FULL.card,
        trains_on="labelled training nodes drawn anew in each round, on the full local graph",
        source="a control: McMahan et al. 2017 with fewer labels per round",
        rotates=True,
    ),
    # At most what DANCE supervises: with more nodes it would be no control.
    search={"rotating.supervised-ratio": (1.0, 1.5, 2.25)},
    label_reuse=True,
)
LOCAL_ONLY = replace(
    FEDAVG_FULL,
    server="dance_flwr.methods.personal_parts:Personalised",
    uplink=Uplink.EACH,
    card=replace(
        FEDAVG_FULL.card,
        leaves_client="its own model's parameters, kept by the server for this client alone; "
        "counts, seconds",
        source="reference without federation",
        evaluation="personalised",
    ),
)
FEDPER = MethodSpec(
    client="dance_flwr.methods.personal_parts:FedPer",
    sections=(SamplingConfig,),
    card=replace(
        FEDAVG_FULL.card,
        leaves_client="parameters of the backbone and the untrained head, counts, seconds",
        source="Arivazhagan et al. 2019, arXiv 1912.00818",
        evaluation="personalised",
    ),
)
DITTO = MethodSpec(
    client="dance_flwr.methods.personal_parts:Ditto",
    sections=(DittoConfig, SamplingConfig),
    card=replace(
        FEDAVG_FULL.card,
        trains_on="every labelled training node of the full local graph, twice",
        leaves_client="parameters of the global model, counts, seconds",
        source="Li et al. 2021, arXiv 2012.04221",
        evaluation="personalised",
    ),
    search={"ditto.mu": (0.01, 0.1, 1.0)},
)
