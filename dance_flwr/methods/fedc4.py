"""FedC4, the client side: train on one's own condensed nodes and on those that the server chose of other clients.

Chen, Li, Zhu, Li and Wang, "Rethinking Client-oriented Federated Graph Learning", CIKM 2025, arXiv 2504.14188; public
code at Ereshkigal1/FedC4 f9aa425. The client condenses as `gcond` does and uploads S = (X', A', Y') once, in every
round its model and the embeddings E of its condensed nodes. The server side, `dance_flwr.strategies.fedc4`, averages
the models and gives each client nodes of other clients and a graph over all of them, on which it trains from then on.
Predictions are made on the real graph.

Uplink: S once; in every round the model and K h floats. A server reads single uploads, and other clients are sent rows
of X' with their labels; X' is synthetic but starts from training nodes.

Deviations from the public code: **its run takes the loss of the full, uncondensed graph** of a client, 70 % of all
nodes labelled whatever the split, and drops what the condensed pass found; here only condensed nodes are trained on,
and `fedc4.released-code` brings back the full graph, with the harness's own training nodes. Condensation is GCond's,
500 steps from training nodes, where the code takes 21 from noise. Models are weighted by nodes, not by K. X' and Y'
travel once, not in every round, and a client is not sent its own. See also `condense.exchange`.

Test accuracy of `fedc4` on Cora at r = 8 / 4 / 2 %: 86.02 / 84.98 / 84.33 % in the DANCE paper, 83.22 / 82.11 / 81.12 %
here.
Test accuracy of `fedc4` on CiteSeer at r = 8 / 4 / 2 %: 75.95 / 74.84 / 73.91 % in the DANCE paper, 73.61 / 74.19 /
72.45 % here.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.condense.matching import Condensed
from dance_flwr.condense.selection import condensed_operator
from dance_flwr.condense.uploads import as_upload
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.gcond import GCond
from dance_flwr.methods.plain import train_on
from dance_flwr.report import Report
from dance_flwr.site import Site


class FedC4(GCond):
    """GCond's S, joined by condensed nodes of other clients."""

    uplink = Uplink.EACH
    card = MethodCard(
        condenses=True,
        trains_on="its own synthetic labelled nodes and others' that the server chose, on a graph that the server made",
        leaves_client="model parameters; its synthetic graph, features, labels and adjacency, once; embeddings of its "
        "synthetic nodes in every round; counts, seconds; the server reads each client's, other clients get synthetic "
        "nodes of it",
        source="Chen et al. 2025, arXiv 2504.14188",
        server="fedc4",
    )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of own and given rows; add embeddings of the own ones, at first also S."""
        report = Report()
        own = self.graph_of(site, config, info, report)
        with report.phase("train"):
            if config.fedc4.released_code:
                graph, labels = site.training_graph.operator(model.backbone.operator), site.train_labels
                report.loss = train_on(model, site.table.nodes, graph, labels, config, info.round)
            else:
                whole = joined(own, info.given)
                graph = condensed_operator(model.backbone.operator, whole)
                report.loss = train_on(model, whole.features, graph, whole.labels, config, info.round)
                report.counts["evidence-supervised"] = whole.labels.numel()
        with report.phase("forward"):
            report.statistics = {"embeddings": embeddings(model, own)}
        if info.first:
            report.statistics |= as_upload(own)
        return report


def joined(own: Condensed, given: Mapping[str, Tensor]) -> Condensed:
    """Return the K own rows, then the m given ones, on the given graph; S itself where nothing is given.

    Parameters
    ----------
    given : "features" [m, d], "labels" [m], "adjacency" [K + m, K + m]
    """
    if not given:
        return own
    labels = torch.cat([own.labels, given["labels"]])
    return Condensed(labels, torch.cat([own.features, given["features"]]), given["adjacency"])


@torch.no_grad()
def embeddings(model: PlainModel, own: Condensed) -> Tensor:
    """E = g(X', A'), what the head reads, of the model as it was just trained; [K, h]."""
    model.eval()
    return model.backbone(own.features, condensed_operator(model.backbone.operator, own))  # type: ignore[no-any-return]
