"""The losses of a client on its condensed graph, and the nodes of the plain term."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.weighing import Weighed


def condensed_loss(
    model: DanceModel,
    hidden: Float[Tensor, "K h"],
    evidence: Weighed,
    features: Float[Tensor, "K w"],
    core_logits: Float[Tensor, "K C"],
    labels: Int64[Tensor, "K"],
    settings: DanceConfig,
) -> Float[Tensor, ""]:
    """eq:fusion_train_loss + CE of the condensed graph; a scalar.

    L_m = mean CE(Dec(x_v), y_v) + lambda_align mean KL(softmax(o^g) || softmax(o^t)).
    The cross-entropies are means over labelled core nodes, the divergence is one over all core
    nodes; without a labelled core node only the divergence remains.

    Parameters
    ----------
    hidden : [K, h] g_v; features : [K, w] x_v, with the noise of the round
    core_logits : [K, C] Dec_g of the condensed graph
    labels : [K] int64, -1 where unknown
    """
    graph, text = model.graph_logits(hidden), model.text_logits(evidence.text)
    divergence = F.kl_div(
        F.log_softmax(text, dim=1), F.log_softmax(graph, dim=1), reduction="sum", log_target=True
    )
    loss = settings.align_weight * divergence / max(1, labels.numel())
    known = labels >= 0
    if bool(known.any()):
        target = labels[known]
        loss = loss + F.cross_entropy(model.fused_logits(features, evidence.labels)[known], target)
        loss = loss + F.cross_entropy(core_logits[known], target)
    return loss


def plain_loss(
    model: DanceModel,
    hidden: Float[Tensor, "s h"],
    labels: Int64[Tensor, "s"],
    settings: DanceConfig,
) -> Float[Tensor, ""]:
    """plain_weight * mean CE(Dec_g(g_v), y_v); a scalar.

    An addition to the paper: nothing else trains the plain pass, on which gating relies.

    Parameters
    ----------
    hidden : [s, h] g_v of labelled nodes; labels : [s] int64
    """
    if not labels.numel():
        return hidden.new_zeros(())
    return settings.plain_weight * F.cross_entropy(model.graph_logits(hidden), labels)


def supervised_nodes(
    candidates: Candidates,
    evidence: Evidence,
    labels: Int64[Tensor, "n"],
    settings: DanceConfig,
) -> Int64[Tensor, "s"]:
    """Return the labelled nodes of the plain term, [s] int64.

    They are the core and, with `evidence_supervision`, its selected neighbours, whose texts are
    read in this round anyway, under the same budgets. The paper trains on the core alone.

    Parameters
    ----------
    labels : [n] int64 training labels, -1 where unknown
    """
    nodes = candidates.nodes
    if settings.evidence_supervision:
        chosen = [
            hop.index[gate > 0] for hop, gate in zip(candidates.hops, evidence.gates, strict=True)
        ]
        nodes = torch.unique(torch.cat([nodes, *chosen]))
    return nodes[labels[nodes] >= 0]
