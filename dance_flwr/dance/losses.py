"""What a client minimises on its condensed graph, and over which nodes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence
from dance_flwr.dance.model import DanceModel


def condensed_loss(
    model: DanceModel,
    hidden: Tensor,
    evidence: Evidence,
    features: Tensor,
    core_logits: Tensor,
    labels: Tensor,
    settings: DanceConfig,
    near: Tensor | None = None,
) -> Tensor:
    """eq:fusion_train_loss + CE of the condensed graph; a scalar.

    L_m = mean CE(Dec(x_v), y_v) + lambda_align mean KL(softmax(o^g) || softmax(o^t)).
    Cross-entropies are means over labelled core nodes, the divergence over all core nodes; without
    a labelled core node only the divergence is left.
    """
    graph, text = model.graph_logits(hidden), model.text_logits(evidence.text)
    align = F.kl_div(
        F.log_softmax(text, dim=1),
        F.log_softmax(graph, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    loss = settings.align_weight * align
    known = labels >= 0
    if bool(known.any()):
        target = labels[known]
        loss = loss + F.cross_entropy(model.fused_logits(features, near)[known], target)
        loss = loss + F.cross_entropy(core_logits[known], target)
    return loss


def plain_loss(model: DanceModel, hidden: Tensor, labels: Tensor, settings: DanceConfig) -> Tensor:
    """plain_weight * mean CE(Dec_g(g_v), y_v): ours, as nothing else trains the pass that gating
    stands on; a scalar.

    Parameters
    ----------
    hidden : [s, h] g_v of labelled nodes; labels : [s] int64
    """
    if not labels.numel():
        return hidden.new_zeros(())
    return settings.plain_weight * F.cross_entropy(model.graph_logits(hidden), labels)


def supervised_nodes(
    candidates: Candidates, evidence: Evidence, labels: Tensor, settings: DanceConfig
) -> Tensor:
    """Labelled nodes of the plain term: the core, and by `evidence_supervision` its selected
    neighbours; [s] int64.

    Their texts are read in this round anyway, under the same budgets. The paper trains on the core
    alone.

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
