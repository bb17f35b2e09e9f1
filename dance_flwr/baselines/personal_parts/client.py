"""The client sides of FedPer and Ditto."""

from copy import deepcopy

from torch import Tensor, nn

from dance_flwr.baselines.personal_parts import DittoConfig
from dance_flwr.baselines.personal_parts.state import LAST, MEAN, keep, kept
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.proximal import proximal_term
from dance_flwr.seeding import seeded


class _Personal(FedAvgFull):
    def part(self, model: PlainModel) -> nn.Module:
        """Return what of the model is the client's own."""
        return model

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict with the client's part of this round; with the received one before its first."""
        if state := kept(data, info.run, info.round, MEAN):
            self.part(model).load_state_dict(state)
        return super().predict(model, data, config, info, nodes)


class FedPer(_Personal):
    """FedAvg's local training of the common body with the client's own head."""

    def part(self, model: PlainModel) -> nn.Module:
        """Return the head."""
        return model.head_graph

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train body and head, keep the head, and put back the one that came with the body."""
        head = self.part(model)
        received = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        head.load_state_dict(kept(data, info.run, info.round - 1, LAST) or received)
        report = super().train(model, data, config, info)
        keep(data, config, info, head.state_dict())
        head.load_state_dict(received)
        return report


class Ditto(_Personal):
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
