"""FedPer and Ditto: a part of the model, or a second model, stays at the client.

Both keep it in the client's folder, average it over rounds as the server averages models
(`ema-decay`), and are scored with it. Uplink: the model, of which the server needs the weighted
mean only. Deviation: Adam in place of gradient descent, as everywhere here.

FedPer: Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization
Layers", arXiv 1912.00818, 2019. theta is the backbone, phi_k the linear head of client k, trained
together:

    (theta_k, phi_k) from minimising F_k(theta, phi_k),  theta <- sum_k w_k theta_k / sum_k w_k.

Deviation: an upload holds the untrained head, as received, so that it has the names of every model.

Ditto: Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization", ICML 2021. The global model w is that of FedAvg, bit by bit; in every round client
k also trains, from its last v_k,

    v_k <- argmin F_k(v) + (mu / 2) ||v - w^(t-1)||^2  for as many local epochs.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


@dataclass(frozen=True)
class DittoConfig(Section):
    """Keys of Ditto."""

    name: ClassVar[str] = "ditto"
    mu: float = option(
        0.1, "weight of the proximal term of the personal model; 0 = trained alone", ge=0
    )


FEDPER = MethodSpec(
    client="dance_flwr.methods.personal_parts.client:FedPer",
    uplink=Uplink.SUM,
    sections=(SamplingConfig,),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="parameters of the backbone and the untrained head, counts, seconds",
        source="Arivazhagan et al. 2019, arXiv 1912.00818",
        evaluation="personalised",
    ),
)
DITTO = MethodSpec(
    client="dance_flwr.methods.personal_parts.client:Ditto",
    uplink=Uplink.SUM,
    sections=(DittoConfig, SamplingConfig),
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph, twice",
        leaves_client="parameters of the global model, counts, seconds",
        source="Li et al. 2021, arXiv 2012.04221",
        evaluation="personalised",
    ),
    search={"ditto.mu": (0.01, 0.1, 1.0)},
)
