"""Attribution of a prediction to its parts: what graph, text and labels gave to the fused view."""

from math import inf

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.model import DanceModel


def logit_parts(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    text: Float[Tensor, "m d"],
    labels: Float[Tensor, "m C2"] | None,
) -> Float[Tensor, "5 m C"]:
    """O = b + prior + Dec(N W_g g) + Dec(N gated text) + W_y [y_1 || y_2], by `PARTS`; [5, m, C].

    The five parts add up to `fused_logits` without dropout. g itself reads texts: those of the
    neighbourhood, unselected.

    Parameters
    ----------
    labels : [y_1 || y_2], `inference.neighbour_labels`; None = no label evidence
    """
    # LN(s) = w (s - mean(s)) / sigma(s) + b' is linear in s once sigma is known.
    # N is this linear part: both terms are divided by the sigma of their sum, so that the parts are
    # exact and need no method of attribution.
    norm, head = model.norm, model.head_fused
    graph, gated = (
        part - part.mean(dim=1, keepdim=True)
        for part in (model.fuse_graph(hidden), model.gated_text(hidden, model.read(text)))
    )
    sigma = ((graph + gated).square().mean(dim=1, keepdim=True) + norm.eps).sqrt()
    linear = [F.linear(part / sigma * norm.weight, head.weight) for part in (graph, gated)]
    constant, zero = head(norm.bias).expand_as(linear[0]), torch.zeros_like(linear[0])
    prior = zero if model.prior is None else model.prior.expand_as(zero)
    of_labels = zero
    if labels is not None and model.head_labels is not None:
        of_labels = model.head_labels(labels)
    return torch.stack([constant, prior, *linear, of_labels])


def two_best_classes(
    probs: Float[Tensor, "m C"],
) -> tuple[Int64[Tensor, "m"], Int64[Tensor, "m"]]:
    """Return the classes of the largest and of the second largest probability; [m] each.

    Examples
    --------
    >>> two_best_classes(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]]))
    (tensor([1, 0]), tensor([2, 1]))
    """
    best = probs.argmax(dim=1, keepdim=True)  # the lower class of two equal ones
    rival = probs.scatter(1, best, -inf).argmax(dim=1)
    return best.squeeze(1), rival


def log_odds(
    logits: Float[Tensor, "P m C"], best: Int64[Tensor, "m"], rival: Int64[Tensor, "m"]
) -> Float[Tensor, "m P"]:
    """Return O_{v,best} - O_{v,rival} of each part of the logits; [m, P].

    Examples
    --------
    >>> logits = torch.tensor([[[1.0, 3.0, 2.0]], [[0.0, 0.5, 0.0]]])  # two parts of one node
    >>> log_odds(logits, torch.tensor([1]), torch.tensor([2]))
    tensor([[1.0000, 0.5000]])
    """
    # A difference, as softmax ignores what is added to the logits of all classes.
    of_best, of_rival = (
        logits.gather(2, classes.expand(len(logits), -1)[..., None]).squeeze(2)
        for classes in (best, rival)
    )
    return (of_best - of_rival).T


def label_effects(
    gaps: Float[Tensor, "m C2"] | None,
    rows: Int64[Tensor, "E"],
    hops: Int64[Tensor, "E"],
    labels: Int64[Tensor, "E"],
    weights: Float[Tensor, "E"],
) -> Float[Tensor, "E"]:
    """Return alpha^(l) (W_y[c, (l, y)] - W_y[r, (l, y)]) of labelled neighbours, else 0; [E].

    The effects of the neighbours of a node add up to its part "labels".

    Parameters
    ----------
    gaps : [m, 2C] W_y[c] - W_y[r] of each node; None = no label evidence
    rows, hops, labels : [E] int64, row of the node, hop l, training label y or -1
    weights : [E] alpha^(l)

    Examples
    --------
    >>> gaps = torch.tensor([[0.5, -1.0, 2.0, 0.0]])  # two classes, hop 1 then hop 2
    >>> hops, labels = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, -1, 0])
    >>> label_effects(gaps, torch.zeros(4).long(), hops, labels, torch.full((4,), 0.5))
    tensor([ 0.0000, -0.5000,  0.0000,  1.0000])
    """
    # Hop 0 is the node itself, whose label is never read (decision 7).
    counts = (hops > 0) & (labels >= 0)
    if gaps is None or not bool(counts.any()):
        return torch.zeros_like(weights)
    classes = gaps.size(1) // 2
    columns = ((hops - 1) * classes + labels).clamp(min=0)
    return torch.where(counts, weights * gaps[rows, columns], 0.0)
