"""Ditto: a personal model beside the global one, held to it by a proximal term.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization",
ICML 2021. The global model w is that of FedAvg, bit by bit. In every round client k also trains

    v_k <- argmin F_k(v) + (mu / 2) ||v - w^(t-1)||^2

from its last v_k, for as many local epochs; v_k starts at the initial model, stays in the client's
folder, and is what the client is scored with.

Uplink: the model w_k, of which the server needs the weighted mean only.

Deviations: Adam in place of gradient descent, as everywhere here; v_k is averaged over rounds at
the client as w is at the server (`ema-decay`); mu is the same at all clients.
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


METHOD = MethodSpec(
    client="dance_flwr.baselines.ditto.client:Ditto",
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
