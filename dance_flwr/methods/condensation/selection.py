"""How good a condensed graph is: validation accuracy, on the real graph, of a small GCN trained on
it.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graph import VAL
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.adjacency import edges
from dance_flwr.methods.condensation.matching import Condensed
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import seeded

_STEPS = 200
_DROPOUT, _RATE, _DECAY = 0.5, 0.01, 5e-4


def condensed_operator(kind: str, condensed: Condensed) -> Tensor:
    """Return the operator of A' that a backbone of this kind reads, [K, K] sparse; entries below
    0.01 are dropped.
    """
    return operator(kind, *edges(condensed.adjacency), len(condensed.labels))


def scored_by(site: Site, config: RunConfig) -> Callable[[Condensed], float]:
    """Return the score of an S of this client: `validation_accuracy` from the same first network
    for every S.
    """
    shape = ModelShape(site.text_dim, config.hidden_dim, len(site.card.class_names))
    graph, nodes = site.training_graph.operator("gcn"), torch.nonzero(site.split == VAL).flatten()

    def score(found: Condensed) -> float:
        with seeded(config.seed, "condense-check", client=site.card.client):
            return validation_accuracy(found, shape, site.table.nodes, graph, site.labels, nodes)

    return score


def validation_accuracy(
    condensed: Condensed,
    shape: ModelShape,
    features: Tensor,
    graph: Tensor,
    labels: Tensor,
    nodes: Tensor,
) -> float:
    """Share of `nodes` that a 2-layer GCN gets right on the real graph after 200 full-batch steps
    on S.

    Adam at 0.01 with weight decay 5e-4, dropout 0.5, the card of GCond's public code; deviations: a
    third of its steps, one repetition instead of three, and the rate is not lowered half-way. Reads
    torch's own generator.

    Parameters
    ----------
    features : [n, d]; graph : [n, n] sparse operator of kind "gcn"; labels : [n] int64, -1 where
        unknown
    nodes : [m] int64, validation nodes; accuracy is 0 without any
    """
    nodes = nodes[labels[nodes] >= 0]
    if not nodes.numel():
        return 0.0
    model = PlainModel(shape, "gcn", _DROPOUT).to(features.device)
    own = condensed_operator("gcn", condensed)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, weight_decay=_DECAY, fused=True)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        logits = model.graph_logits(model.backbone(condensed.features, own))
        F.cross_entropy(logits, condensed.labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        guess = model.graph_logits(model.backbone(features, graph))[nodes].argmax(1)
    return float((guess == labels[nodes]).float().mean())
