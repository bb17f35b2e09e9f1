"""The losses of a client on its condensed graph, and the nodes of the plain term."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Chosen


@dataclass(frozen=True)
class Labelled:
    """The labelled ones among m nodes.

    Attributes
    ----------
    labels : [s] int64
    places : [s] int64, which of the m nodes they are; None = all of them, in order
    """

    labels: Int64[Tensor, "s"]
    places: Int64[Tensor, "s"] | None

    @classmethod
    def among(cls, labels: Int64[Tensor, "m"]) -> "Labelled":
        """Return the nodes whose label is not -1."""
        places = torch.nonzero(labels >= 0).flatten()
        return cls(labels[places], None if len(places) == len(labels) else places)

    def cross_entropy(self, logits: Float[Tensor, "m C"]) -> Float[Tensor, ""]:
        """Mean CE(o_v, y_v) over the labelled nodes, 0 without any; a scalar."""
        if not len(self.labels):
            return logits.new_zeros(())
        chosen = logits if self.places is None else logits[self.places]
        return F.cross_entropy(chosen, self.labels)


def condensed_loss(
    graph: Float[Tensor, "K C"],
    text: Float[Tensor, "K C"],
    fused: Float[Tensor, "K C"],
    core: Float[Tensor, "K C"],
    labelled: Labelled,
    settings: DanceConfig,
) -> Float[Tensor, ""]:
    """eq:fusion_train_loss + CE of the condensed graph; a scalar.

    L_m = mean CE(Dec(x_v), y_v) + lambda_align mean KL(softmax(o^g) || softmax(o^t)).
    The cross-entropies are means over labelled core nodes, the divergence is one over all core
    nodes; without a labelled core node only the divergence remains.

    Parameters
    ----------
    graph, text, fused, core : [K, C] logits: o^g, o^t, Dec(x_v), Dec_g of the condensed graph
    """
    divergence = F.kl_div(
        F.log_softmax(text, dim=1), F.log_softmax(graph, dim=1), reduction="sum", log_target=True
    )
    loss = settings.align_weight * divergence / max(1, len(graph))
    return loss + labelled.cross_entropy(fused) + labelled.cross_entropy(core)


def plain_loss(
    logits: Float[Tensor, "m C"], supervised: Labelled, settings: DanceConfig
) -> Float[Tensor, ""]:
    """plain_weight * mean CE(Dec_g(g_v), y_v) over the supervised nodes; a scalar.

    An addition to the paper: nothing else trains the plain pass, on which gating relies.

    Parameters
    ----------
    logits : [m, C] Dec_g(g_v)
    """
    return settings.plain_weight * supervised.cross_entropy(logits)


def supervised_nodes(
    candidates: Candidates,
    evidence: Chosen,
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
