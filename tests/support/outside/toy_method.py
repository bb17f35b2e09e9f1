"""A method of another package: keys, client side, server side, search space in one file."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.server_side import Merged, ServerSide, weighted_mean
from dance_flwr.methods.whole_graph import FedAvgFull


@dataclass(frozen=True)
class ToyConfig(Section):
    """Keys of the toy, `toy.*`."""

    name: ClassVar[str] = "toy"
    shrink: float = option(0.5, "factor of a client's labelled share", gt=0, le=1)
    rounds_off: int = option(0, "rounds in which the server keeps its model", ge=0)


class ToyClient(FedAvgFull):
    """FedAvg's training; one number beside the model."""

    def train(self, model, data, config, info):
        """Train, and add the client's labelled share."""
        report = super().train(model, data, config, info)
        share = (data.train_labels >= 0).float().mean() * ToyConfig.of(config).shrink
        report.statistics = {"share": share.reshape(1)}
        return report


class ToyServer(ServerSide):
    """The mean, except in the first `toy.rounds-off` rounds."""

    statistics = ("share",)

    def merge(self, uploads, start, bound, round_):
        """Return the mean, or the model that the round started from."""
        off = round_ <= ToyConfig.of(self.config).rounds_off
        shares = sum(float(upload.statistics["share"]) for upload in uploads)
        state = start if off else weighted_mean(uploads, start, bound)
        return Merged(state, counts={"toy-shares": round(1000 * shares)})


METHOD = MethodSpec(
    client=ToyClient,
    server=ToyServer,
    uplink=Uplink.EACH,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters; its labelled share; counts, seconds",
        source="a test",
    ),
    sections=(ToyConfig,),
    search={"toy.shrink": (0.25, 0.5)},
)
