"""The client side of FedC4."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr_rivals.condensation.client import GCond, labelled_graph
from dance_flwr_rivals.condensation.graphs import Condensed, as_upload


class FedC4(GCond):
    """GCond's S together with condensed nodes of other clients."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of the client's rows and the received ones.

        The statistics are the embeddings of the client's rows, and S when the server requests it.
        """
        report = Report()
        condensed = self.graph_of(data, config, info, report)
        with report.phase("train"):
            graph = labelled_graph(join_received(condensed, info.server_payload), model)
            report.counts["evidence-supervised"] = graph.labels.numel()
            report.loss = train_on(model, graph, config, info.round)
        with report.phase("forward"):
            # Of the own rows alone: the server compares clients by what each has condensed.
            report.statistics = {"embeddings": embeddings(model, condensed)}
        if info.needs_initial_upload:
            # X' and Y' do not change after the set-up, so that they travel once; the public code
            # sends them in every round.
            report.statistics |= as_upload(condensed)
        return report


def join_received(condensed: Condensed, payload: Mapping[str, Tensor]) -> Condensed:
    """Return the client's K rows and the m received ones on the received graph; S if none came.

    Parameters
    ----------
    payload : "features" [m, d], "labels" [m], "adjacency" [K + m, K + m]; or empty
    """
    if not payload:
        return condensed
    # The own rows first: the server's adjacency has this order.
    labels = torch.cat([condensed.labels, payload["labels"]])
    features = torch.cat([condensed.features, payload["features"]])
    return Condensed(labels, features, payload["adjacency"])


@torch.no_grad()
def embeddings(model: PlainModel, condensed: Condensed) -> Tensor:
    """E = g(X', A'), the input of the head of the trained model; [K, h]."""
    # Without dropout, which would move norms and cosines from round to round.
    model.eval()
    graph = labelled_graph(condensed, model)
    return model.backbone(graph.features, graph.operator)  # type: ignore[no-any-return]
