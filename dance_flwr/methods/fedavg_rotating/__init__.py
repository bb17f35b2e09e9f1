"""FedAvg on the full local graphs, supervised by a few labelled nodes that change every round.

A control of condensation. In each round a client draws labelled training nodes, uniformly and
without repetition: `rotating.supervised-ratio` times its budget K = ceil(r |V|). The loss covers
these alone, on the full local graph. Nothing is selected, stored or condensed. By default a round
supervises 2.25 K nodes, about as many as DANCE at r = 8 %, where labelled evidence joins the core;
with ratio 1 it supervises K.

Uplink: the model, of which the server needs the weighted mean only.
"""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


@dataclass(frozen=True)
class RotatingConfig(Section):
    """Keys of fedavg-rotating."""

    name: ClassVar[str] = "rotating"
    # About what DANCE supervises at 8 %, since labelled evidence joins its core.
    supervised_ratio: float = option(
        2.25, "labelled nodes supervised per round, as a multiple of the condensed nodes (K)", gt=0
    )


METHOD = MethodSpec(
    client="dance_flwr.methods.fedavg_rotating.client:FedAvgRotating",
    uplink=Uplink.SUM,
    card=MethodCard(
        condenses=False,
        trains_on="labelled training nodes drawn anew in each round, on the full local graph",
        leaves_client="model parameters, counts, seconds",
        source="a control: McMahan et al. 2017 with fewer labels per round",
        rotates=True,
    ),
    sections=(RotatingConfig, SamplingConfig),
    # At most what DANCE supervises: with more nodes it would be no control.
    search={"rotating.supervised-ratio": (1.0, 1.5, 2.25)},
    label_reuse=True,
)
