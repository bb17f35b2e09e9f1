"""The client side of FedPer."""

from torch import Tensor

from dance_flwr.baselines.personal_state import LAST, MEAN, keep, kept
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class FedPer(FedAvgFull):
    """FedAvg's local training of the common body with the client's own head."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train body and head, keep the head, and put back the one that came with the body."""
        head = model.head_graph
        received = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        head.load_state_dict(kept(data, info.run, info.round - 1, LAST) or received)
        report = super().train(model, data, config, info)
        keep(data, config, info, head.state_dict())
        head.load_state_dict(received)
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict with the client's head of this round; with the received one before its first."""
        if head := kept(data, info.run, info.round, MEAN):
            model.head_graph.load_state_dict(head)
        return super().predict(model, data, config, info, nodes)
