"""The client side of FedAvg on labelled nodes that change every round."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.nodes import node_budget
from dance_flwr.methods.baselines import RotatingConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import generator


class FedAvgRotating(PlainMethod):
    """The plain network on the whole graph, with a loss over a few labelled nodes per round."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of the round's nodes, the same in all local epochs."""
        report, graph = Report(), LabelledGraph.of(data, data.training_graph, model)
        with report.phase("nodes"):
            nodes = supervised_nodes(data, config, info.round)
            # Every node and edge is read; only the loss is restricted, to isolate the effect of few
            # labels.
            targets = torch.full_like(graph.labels, -1)
            targets[nodes] = graph.labels[nodes]
        report.counts["evidence-supervised"] = nodes.numel()
        with report.phase("train"):
            report.loss = train_on_graph(model, graph, config, info.round, targets)
        return report


def supervised_nodes(data: ClientData, config: RunConfig, round_: int) -> Tensor:
    """Return ceil(rho K) labelled training nodes, drawn uniformly; [m] int64, ascending.

    K = ceil(r |V|) of the client's training graph, rho = `rotating.supervised-ratio`. A client with
    fewer labelled nodes supervises all of them. The draws depend on (seed, round, client) alone.
    """
    labelled = torch.nonzero(data.train_labels >= 0).flatten()
    budget = node_budget(int(data.training_graph.visible.sum()), config.condensation_ratio)
    count = node_budget(budget, RotatingConfig.of(config).supervised_ratio)
    # By round: nothing is stored, and a run that is resumed draws the same nodes.
    draws = generator(config.seed, "rotating", round_=round_, client=data.card.client)
    order = torch.randperm(len(labelled), generator=draws)[:count].to(labelled.device)
    return labelled[order].sort().values
