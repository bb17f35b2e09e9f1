"""min_X' sum_c (K_c / max K_c) D(grad L_c(S; theta), g_c): FedGM's refinement at the server.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI
2025. S is the disjoint union of all clients' condensed graphs, and g_c is the gradient at theta,
the network of `condensation.matching`, averaged over all clients' nodes of class c. Only X' moves;
A' stays block diagonal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.baselines.condensation.adjacency import normalise, union_edges
from dance_flwr.baselines.condensation.graphs import HOPS, Condensed, layer_normalise
from dance_flwr.baselines.condensation.matching import Network, distance_to_gradients
from dance_flwr.config.sections import TrainingConfig
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator

AdamState = dict[str, Tensor]


@dataclass
class Block:
    """One client's part of the union, and Adam's state for its features.

    Attributes
    ----------
    moments : Adam's state under torch's own names; empty before the first step
    """

    graph: Condensed
    moments: AdamState = field(default_factory=dict)


def pool_gradients(
    gradients: Sequence[tuple[Tensor, Tensor]], counts: Tensor
) -> tuple[Tensor, Tensor]:
    """g_c = sum_k (m_kc / sum_j m_jc) g_kc, 0 where no client has a node of c.

    If g_kc is the mean over m_kc nodes, g_c is the mean over all of them; ([C, d, C], [C, C]).

    Parameters
    ----------
    gradients : M results of `matching.class_gradients`
    counts : m, [M, C] >= 0
    """
    shares = counts / counts.sum(0).clamp(min=torch.finfo(counts.dtype).tiny)
    weights, biases = (torch.stack(part) for part in zip(*gradients, strict=True))
    return torch.einsum("kc,kcdj->cdj", shares, weights), torch.einsum("kc,kcj->cj", shares, biases)


def refine(
    blocks: Sequence[Block],
    network: Network,
    target: tuple[Tensor, Tensor],
    present: Tensor,
    rate: float,
    kind: str,
) -> tuple[list[Block], float]:
    """Move X' by one Adam step; return the new blocks and the loss before the step.

    Rows of a class without a gradient in this round do not count: their gradient would be matched
    with zero.

    Parameters
    ----------
    target : g, as `pool_gradients` returns it
    present : [C] bool, classes that have a gradient
    rate : Adam learning rate
    kind : name in `DISTANCES`
    """
    free = [block.graph.features.detach().clone().requires_grad_() for block in blocks]
    labels = torch.cat([block.graph.labels for block in blocks])
    rows = torch.sort(labels, stable=True).indices
    rows = rows[present[labels[rows]]]
    if not rows.numel():
        return list(blocks), 0.0
    optimizer = torch.optim.Adam(free, lr=rate)
    for features, block in zip(free, blocks, strict=True):
        optimizer.state[features] = {name: tensor.clone() for name, tensor in block.moments.items()}
    hidden = torch.cat(
        [_propagate(x, block.graph.adjacency) for x, block in zip(free, blocks, strict=True)]
    )
    loss = distance_to_gradients(target, network, (hidden[rows], labels[rows]), kind)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    refined = [
        Block(
            Condensed(block.graph.labels, x.detach(), block.graph.adjacency),
            dict(optimizer.state[x]),
        )
        for x, block in zip(free, blocks, strict=True)
    ]
    return refined, float(loss.detach())


def _propagate(features: Tensor, adjacency: Tensor) -> Tensor:
    """P'^2 LN(X') of one block, [K_k, d]."""
    hidden, hop = layer_normalise(features), normalise(adjacency)
    for _ in range(HOPS):
        hidden = hop @ hidden
    return hidden


def union_operator(kind: str, adjacencies: Sequence[Tensor]) -> Tensor:
    """Return the backbone's operator of the disjoint union of A'_k, [sum K_k, sum K_k] sparse.

    Entries below 0.01 are dropped, as at a client.
    """
    nodes = sum(len(adjacency) for adjacency in adjacencies)
    return operator(kind, *union_edges(adjacencies), nodes)


def train_on_union(
    model: PlainModel, graphs: Sequence[Condensed], steps: int, config: TrainingConfig
) -> float:
    """Minimise the mean cross-entropy of all rows of the union, in place; return the last loss.

    Full batches, Adam at `learning-rate` with `weight-decay`, a tenth of the rate in the second
    half. Draws from torch's global generator (dropout). Without rows the model is not changed.
    """
    labels = torch.cat([graph.labels for graph in graphs]) if graphs else torch.empty(0)
    if not labels.numel():
        return 0.0
    features = torch.cat([graph.features for graph in graphs])
    graph = union_operator(model.backbone.operator, [graph.adjacency for graph in graphs])
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=(steps + 1) // 2)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model.graph_logits(model.backbone(features, graph)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return float(loss.detach())
