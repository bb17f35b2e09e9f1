"""Quality of a condensed graph: validation accuracy, on the real graph, of a GCN trained on it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.condensation.adjacency import edges
from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import seeded

_STEPS = 200
_DROPOUT, _RATE, _DECAY = 0.5, 0.01, 5e-4


def condensed_operator(kind: str, condensed: Condensed) -> Tensor:
    """Return the backbone's operator of A', [K, K] sparse; entries below 0.01 are dropped."""
    return operator(kind, *edges(condensed.adjacency), len(condensed.labels))


def validation_scorer(data: ClientData, config: RunConfig) -> Callable[[Condensed], float]:
    """Return `validation_accuracy` as a function of S; every S starts from the same weights."""
    shape = ModelShape(data.text_dim, config.hidden_dim, len(data.card.class_names))
    graph, nodes = data.training_graph.operator("gcn"), torch.nonzero(data.split == VAL).flatten()

    def score(condensed: Condensed) -> float:
        with seeded(config.seed, "condense-check", client=data.card.client):
            return validation_accuracy(condensed, shape, data.features, graph, data.labels, nodes)

    return score


def validation_accuracy(
    condensed: Condensed,
    shape: ModelShape,
    features: Tensor,
    graph: Tensor,
    labels: Tensor,
    nodes: Tensor,
) -> float:
    """Return the accuracy on `nodes` of the real graph of a GCN after 200 full-batch steps on S.

    Two layers, Adam at 0.01 with weight decay 5e-4, dropout 0.5, the settings of GCond's public
    code. Deviations: a third of its steps, one repetition instead of three, and a constant learning
    rate. Draws from torch's global generator.

    Parameters
    ----------
    features : [n, d]
    graph : [n, n] sparse operator of kind "gcn"
    labels : [n] int64, -1 where unknown
    nodes : [m] int64, validation nodes; the accuracy is 0 without any
    """
    nodes = nodes[labels[nodes] >= 0]
    if not nodes.numel():
        return 0.0
    model = PlainModel(shape, "gcn", _DROPOUT).to(features.device)
    operator_of_s = condensed_operator("gcn", condensed)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, weight_decay=_DECAY, fused=True)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        logits = model.graph_logits(model.backbone(condensed.features, operator_of_s))
        F.cross_entropy(logits, condensed.labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model.graph_logits(model.backbone(features, graph))[nodes].argmax(1)
    return float((predicted == labels[nodes]).float().mean())
