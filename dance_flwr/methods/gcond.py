"""GCond (Jin et al., ICLR 2022) at every client, then FedAvg on the condensed graphs.

Each client condenses its labelled graph once, before its first round, to S = (X', A', Y') of the shared budget by
matching gradients (`condense.matching`), keeps S in its own folder and trains on it in every round; all K rows are
labelled. Predictions are made on the real graph. Uplink: the weighted mean of the parameters; S never leaves.

GCond is a centralised method: running it at each client and averaging is how the paper compares with it.
"""

from dataclasses import asdict

import torch

from dance_flwr.condense.budget import training_quotas
from dance_flwr.condense.matching import Condensed, RealGraph, condense
from dance_flwr.condense.selection import condensed_operator, validation_accuracy
from dance_flwr.condense.store import Arrays, kept
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape, PlainModel
from dance_flwr.graph import VAL
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.plain import PlainMethod, train_on
from dance_flwr.report import Report
from dance_flwr.seeding import generator, seeded
from dance_flwr.site import Site


class GCond(PlainMethod):
    """The plain network on a synthetic graph that gives its gradients."""

    uplink = Uplink.SUM
    card = MethodCard(
        condenses=True,
        trains_on="synthetic labelled nodes with a learnt adjacency, condensed once",
        leaves_client="model parameters, counts, seconds",
        source="Jin et al. 2022, run locally at each client",
    )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all rows of S; the first round also condenses."""
        report = Report()
        with report.phase("nodes"):
            made_from = asdict(config.condense) | {"ratio": config.dance.ratio, "seed": config.seed}
            made_from |= {"inductive": site.inductive, "partition": site.card.partition_sha256}
            made_from |= {"hidden": config.hidden_dim}
            found = kept(site.folder, info.run, made_from, site.device, lambda: condensed_arrays(site, config))
            condensed = Condensed(found["condensed_labels"], found["features"], found["adjacency"])
        count = condensed.labels.numel()
        report.counts |= {"condensed-nodes": count, "evidence-supervised": count}
        with report.phase("train"):
            operator = condensed_operator(model.backbone.operator, condensed)
            report.loss = train_on(model, condensed.features, operator, condensed.labels, config, info.round)
        return report


def condensed_arrays(site: Site, config: RunConfig) -> Arrays:
    """Condense the client's training graph; what goes into its `state.npz`. Without a training label S is empty."""
    graph, features, client = site.training_graph, site.table.nodes, site.card.client
    classes = len(site.card.class_names)
    quotas = training_quotas(site.train_labels, int(graph.visible.sum()), classes, config.dance.ratio)
    if not int(quotas.sum()):
        empty = features.new_empty(0, 0)
        return {"condensed_labels": quotas.new_empty(0), "features": features[:0], "adjacency": empty}
    operator, nodes = graph.operator("gcn"), torch.nonzero(site.split == VAL).flatten()
    shape = ModelShape(features.size(1), config.hidden_dim, 1, classes)

    def score(found: Condensed) -> float:
        with seeded(config.seed, "condense-check", client=client):  # the same start for every S
            return validation_accuracy(found, shape, features, operator, site.labels, nodes)

    draw = generator(config.seed, "condense", client=client)
    with seeded(config.seed, "condense", client=client):
        real = RealGraph(features, operator, site.train_labels)
        found = condense(real, quotas, config.condense, draw, score)
    return {"condensed_labels": found.labels, "features": found.features, "adjacency": found.adjacency}
