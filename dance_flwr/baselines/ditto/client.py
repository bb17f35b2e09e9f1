"""The client side of Ditto."""

from copy import deepcopy

from torch import Tensor

from dance_flwr.baselines.ditto import DittoConfig
from dance_flwr.baselines.personal_state import LAST, MEAN, keep, kept
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.proximal import proximal_term
from dance_flwr.seeding import seeded


class Ditto(FedAvgFull):
    """FedAvg's local training of the global model, then of the client's personal one."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train w as FedAvg does, then v; report the loss of w and the seconds of both."""
        personal = deepcopy(model)
        report = super().train(model, data, config, info)
        # Its draws are those of `local-only`, which it equals with mu = 0.
        draws = seeded(config.seed, "train", round_=info.round, client=data.card.client)
        with report.phase("train"), draws:
            received = [parameter.detach().clone() for parameter in personal.parameters()]
            if last := kept(data, info.run, info.round - 1, LAST):
                personal.load_state_dict(last)
            with proximal_term(personal, DittoConfig.of(config).mu, received):
                super().train(personal, data, config, info)
        keep(data, config, info, personal.state_dict())
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict with the personal model of this round; with w before the client's first."""
        if personal := kept(data, info.run, info.round, MEAN):
            model.load_state_dict(personal)
        return super().predict(model, data, config, info, nodes)
