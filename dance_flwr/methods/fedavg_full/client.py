"""The client side of FedAvg."""

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class FedAvgFull(PlainMethod):
    """The plain network on the text embedding t_u of every node."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes."""
        report = Report()
        operator = data.training_graph.operator(model.backbone.operator)
        with report.phase("train"):
            report.loss = train_on_graph(
                model,
                data.features,
                operator,
                data.train_labels,
                config,
                info.round,
                data.card.client,
            )
        return report
