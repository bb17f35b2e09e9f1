"""min over X' of sum_c (K_c / max K_c) D(grad L_c(S; theta), g_c): what FedGM's server does with
the clients' S.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI
2025. S is the disjoint union of all clients' condensed graphs, g_c the mean over all clients' nodes
of class c of the gradient at theta, the matching network of `condense.matching`. Only X' moves; A'
stays block diagonal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.condensation.adjacency import normalised, union_edges
from dance_flwr.methods.condensation.matching import HOPS, Condensed, Network, distance_to, standard
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator

AdamState = dict[str, Tensor]


@dataclass
class Block:
    """One client's part of the union, and how far Adam is with its features.

    Attributes
    ----------
    moments : torch's own names of Adam's state; empty before the first step
    """

    graph: Condensed
    moments: AdamState = field(default_factory=dict)


def pooled(gradients: Sequence[tuple[Tensor, Tensor]], counts: Tensor) -> tuple[Tensor, Tensor]:
    """g_c = sum_k (m_kc / sum_j m_jc) g_kc, zeros where no client has a node of c; ([C, d, C], [C,
    C]).

    With m the numbers of nodes that the means g_kc are taken over, g_c is the mean over all of
    them.

    Parameters
    ----------
    gradients : M results of `matching.class_gradients`; counts : m, [M, C] >= 0
    """
    shares = counts / counts.sum(0).clamp(min=torch.finfo(counts.dtype).tiny)
    weights, biases = (torch.stack(part) for part in zip(*gradients, strict=True))
    return torch.einsum("kc,kcdj->cdj", shares, weights), torch.einsum("kc,kcj->cj", shares, biases)


def refine(
    blocks: Sequence[Block],
    network: Network,
    wanted: tuple[Tensor, Tensor],
    present: Tensor,
    rate: float,
    kind: str,
) -> tuple[list[Block], float]:
    """Move X' by one step of Adam; return the new blocks and the loss before the step.

    A class without a gradient in this round does not count: its rows would be drawn to where they
    teach nothing.

    Parameters
    ----------
    wanted : g, as `pooled` returns it; present : [C] bool, classes that g knows
    rate : Adam learning rate; kind : name in `DISTANCES`
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
        [_propagated(x, block.graph.adjacency) for x, block in zip(free, blocks, strict=True)]
    )
    loss = distance_to(wanted, network, (hidden[rows], labels[rows]), kind)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    made = [
        Block(
            Condensed(block.graph.labels, x.detach(), block.graph.adjacency),
            dict(optimizer.state[x]),
        )
        for x, block in zip(free, blocks, strict=True)
    ]
    return made, float(loss.detach())


def _propagated(features: Tensor, adjacency: Tensor) -> Tensor:
    """P'^2 LN(X') of one block, [K_k, d]."""
    hidden, step = standard(features), normalised(adjacency)
    for _ in range(HOPS):
        hidden = step @ hidden
    return hidden


def union_operator(kind: str, adjacencies: Sequence[Tensor]) -> Tensor:
    """Return the operator of the disjoint union of A'_k that a backbone of this kind reads, [sum
    K_k, sum K_k] sparse.

    Entries below 0.01 are dropped, as where a client trains on its own.
    """
    return operator(
        kind, *union_edges(adjacencies), sum(len(adjacency) for adjacency in adjacencies)
    )


def train_on_union(
    model: PlainModel, graphs: Sequence[Condensed], steps: int, config: RunConfig
) -> float:
    """Minimise the mean cross-entropy of all rows of the union, in place; return the last loss.

    Full batches, Adam at `learning-rate` with `weight-decay`, a tenth of the rate in the second
    half. Reads torch's own generator (dropout); without rows the model stays as it is.
    """
    labels = torch.cat([graph.labels for graph in graphs]) if graphs else torch.empty(0)
    if not labels.numel():
        return 0.0
    features = torch.cat([graph.features for graph in graphs])
    step = union_operator(model.backbone.operator, [graph.adjacency for graph in graphs])
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    slower = torch.optim.lr_scheduler.StepLR(optimizer, step_size=(steps + 1) // 2)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model.graph_logits(model.backbone(features, step)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
    return float(loss.detach())
