"""What the prediction of a node consists of: its views, what is deployed, and the parts of O."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.dance.model import DanceModel

PARTS = ("constant", "prior", "graph", "text", "labels")
FUSED, SMOOTHED = "fused", "smoothed"
STAGES = ("plain", "core", FUSED, DEPLOYED, SMOOTHED)


@dataclass(frozen=True)
class Explanation:
    """The predictions of m nodes by stage, and what graph, text and labels gave to the fused view.

    Attributes
    ----------
    views : names of the views that "deployed" averages
    stages : names of the stages that are known, in the order of `STAGES`; "fused" is among them
        whether it is deployed or not, since it alone rests on the evidence
    probs : [P, m, C] class probabilities by stage
    rival : [m] int64, the second class of the last stage
    parts : [m, 5] float, O_{v,c} - O_{v,r} by `PARTS`, c = the predicted class, r = `rival`
    label_gaps : [m, 2C] what a label of weight 1 adds to O_{v,c} - O_{v,r}, by hop and class; None
        without label evidence
    """

    views: tuple[str, ...]
    stages: tuple[str, ...]
    probs: Float[Tensor, "P m C"]
    rival: Int64[Tensor, "m"]
    parts: Float[Tensor, "m 5"]
    label_gaps: Float[Tensor, "m C2"] | None

    @classmethod
    def of(
        cls,
        model: DanceModel,
        views: tuple[str, ...],
        known: Mapping[str, Float[Tensor, "m C"]],
        logits: Float[Tensor, "5 m C"],
    ) -> "Explanation":
        """Compare the two best classes of the last stage that is known.

        Parameters
        ----------
        known : probabilities by stage, "fused" among them
        logits : `logit_parts` of the nodes
        """
        stages = tuple(stage for stage in STAGES if stage in known)
        probs = torch.stack([known[stage] for stage in stages])
        best = probs[-1].argmax(dim=1, keepdim=True)
        rival = probs[-1].scatter(1, best, -inf).argmax(dim=1, keepdim=True)
        gaps = None
        if model.head_labels is not None:
            weight = model.head_labels.weight
            gaps = weight[best.squeeze(1)] - weight[rival.squeeze(1)]
        where = torch.stack([best, rival]).expand(len(PARTS), 2, -1, 1).transpose(0, 1)
        of_best, of_rival = (logits.gather(2, classes).squeeze(2) for classes in where)
        return cls(views, stages, probs, rival.squeeze(1), (of_best - of_rival).T, gaps)

    def label_effects(
        self, rows: Tensor, hops: Tensor, labels: Tensor, weights: Float[Tensor, "E"]
    ) -> Float[Tensor, "E"]:
        """Return alpha^(l) (W_y[c, (l, y)] - W_y[r, (l, y)]) of labelled neighbours, else 0; [E].

        They add up to the part "labels" of their node.

        Parameters
        ----------
        rows, hops, labels : [E] int64, row of the node, hop l, training label y or -1
        weights : [E] alpha^(l)
        """
        counts = (hops > 0) & (labels >= 0)
        if self.label_gaps is None or not bool(counts.any()):
            return torch.zeros_like(weights)
        classes = self.label_gaps.size(1) // 2
        at = ((hops - 1) * classes + labels).clamp(min=0)
        return torch.where(counts, weights * self.label_gaps[rows, at], 0.0)


def logit_parts(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    text: Float[Tensor, "m d"],
    labels: Float[Tensor, "m C2"] | None,
) -> Float[Tensor, "5 m C"]:
    """O = b + prior + Dec(N W_g g) + Dec(N gated text) + W_y [y_1 || y_2], by `PARTS`; [5, m, C].

    LN(s) = w (s - mean(s)) / sigma(s) + b' is linear in s once sigma is known, and N stands for its
    linear part: both terms are divided by the sigma of their sum. So the five add up to
    `fused_logits` without dropout. g itself reads texts: those of the neighbourhood, unselected.

    Parameters
    ----------
    labels : [y_1 || y_2], `inference.neighbour_labels`; None = no label evidence
    """
    norm, head = model.norm, model.head_fused
    graph, gated = (
        part - part.mean(dim=1, keepdim=True)
        for part in (model.fuse_graph(hidden), model.gated_text(hidden, model.read(text)))
    )
    sigma = ((graph + gated).square().mean(dim=1, keepdim=True) + norm.eps).sqrt()
    given = [F.linear(part / sigma * norm.weight, head.weight) for part in (graph, gated)]
    constant, none = head(norm.bias).expand_as(given[0]), torch.zeros_like(given[0])
    prior = none if model.prior is None else model.prior.expand_as(none)
    if labels is None or model.head_labels is None:
        return torch.stack([constant, prior, *given, none])
    return torch.stack([constant, prior, *given, model.head_labels(labels)])
