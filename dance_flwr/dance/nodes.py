"""Sec. 3.2 and Alg. 2: label-aware node condensation."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.nn.kmeans import cluster_by_class
from dance_flwr.nn.ragged import ptr_of_rows, rank_in_row

UNASSIGNED = -1


@dataclass(frozen=True)
class Prediction:
    """Output of the last global model for every local node.

    Attributes
    ----------
    hidden : [n, h] z_v = g_v, the embedding of the plain pass
    probs : [n, C] p(y | v)
    """

    hidden: Float[Tensor, "n h"]
    probs: Float[Tensor, "n C"]

    def confidence(self) -> Float[Tensor, "n"]:
        """pi_v = max_c p(c | v), [n] in [0, 1]."""
        return self.probs.max(dim=1).values

    def difficulty(self) -> Float[Tensor, "n"]:
        """eq:difficulty: u_v = -sum_c p(c | v) log p(c | v), [n] nats, with 0 log 0 = 0."""
        return -torch.xlogy(self.probs, self.probs).sum(dim=1)


def pseudo_labels(
    prediction: Prediction, labels: Int64[Tensor, "n"], threshold: float
) -> Int64[Tensor, "n"]:
    """eq:pseudo_label: y_v if labelled, the predicted class if pi_v >= tau, else `UNASSIGNED`; [n]
    int64.

    Labelled nodes always count. Alg. 2 also filters them by confidence; the equation does not, and
    with an untrained model that filter leaves the first core nearly empty.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where unknown
    threshold : tau
    """
    predicted = torch.where(
        prediction.confidence() >= threshold, prediction.probs.argmax(dim=1), UNASSIGNED
    )
    return torch.where(labels >= 0, labels, predicted)


def class_quotas(sizes: Int64[Tensor, "C"], budget: int) -> Int64[Tensor, "C"]:
    """K_c = floor(K |V_c| / N_conf), then +1 for the largest fractions; [C] int64.

    The largest-remainder method. Empty classes get nothing, and their share goes to the others;
    ties go to the lower class index. A quota never exceeds the size of its class, so the sum is
    min(budget, N_conf).

    Parameters
    ----------
    sizes : [C] int64, |V_c|
    budget : K in nodes
    """
    total = int(sizes.sum())
    budget = min(budget, total)
    if total == 0:
        return torch.zeros_like(sizes)
    quota = sizes * budget // total
    remainder = sizes * budget - quota * total
    order = torch.sort(remainder, descending=True, stable=True).indices
    quota[order[: budget - int(quota.sum())]] += 1
    return quota


def prototype_scores(
    points: Float[Tensor, "m h"],
    classes: Int64[Tensor, "m"],
    centroids: Float[Tensor, "C P h"],
) -> Float[Tensor, "m"]:
    """eq:proto_score: s_v = max over prototypes of v's class of cos(z_v, p); [m] in [-1, 1].

    Rounded to six decimals: nodes that are their own prototype tie at 1, and the lower index, not
    the last bit of a sum, must decide a tie.
    """
    cosine = torch.einsum("mh,cph->mcp", F.normalize(points, dim=1), F.normalize(centroids, dim=2))
    of_class = cosine[torch.arange(points.size(0), device=points.device), classes]
    return of_class.nan_to_num(nan=-2.0).max(dim=1).values.round(decimals=6)


def condense_nodes(
    prediction: Prediction,
    labels: Int64[Tensor, "n"],
    times_selected: Int64[Tensor, "n"],
    config: DanceConfig,
    ratio: float,
    generator: torch.Generator,
    visible: Bool[Tensor, "n"] | None = None,
) -> Int64[Tensor, "K"]:
    """Alg. 2: the condensed core, at most K = ceil(r |V|) nodes in ascending order; [K] int64.

    Two extensions of the paper's rule, each with its own key: a node's score drops by
    `coverage_penalty` per earlier selection, so that successive cores cover the labelled nodes;
    and `labelled_first` fills a class's quota with labelled nodes before others, since only they
    enter the cross-entropy. `core_rule` "random" is the ablation without node condensation: K nodes
    drawn uniformly. If no node is assigned to a class, every node counts under its predicted class.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where unknown
    times_selected : [n] int64, number of earlier cores that contain each node
    ratio : r, of all local nodes
    visible : [n] bool, the nodes that make up V; None = all
    """
    num_nodes, num_classes = prediction.probs.shape
    allowed = torch.ones_like(labels, dtype=torch.bool) if visible is None else visible
    budget = node_budget(int(allowed.sum()), ratio)
    if config.core_rule == "random":
        places = torch.nonzero(allowed).flatten()
        order = torch.randperm(places.numel(), generator=generator).to(places.device)
        return places[order[:budget]].sort().values
    assigned = pseudo_labels(prediction, labels, config.confidence).masked_fill(
        ~allowed, UNASSIGNED
    )
    if not bool((assigned >= 0).any()):
        assigned = prediction.probs.argmax(dim=1).masked_fill(~allowed, UNASSIGNED)
    # Sort by class, so that classes are rows of a ragged table.
    eligible = torch.nonzero(assigned >= 0).flatten()
    eligible = eligible[torch.sort(assigned[eligible], stable=True).indices]
    classes, points = assigned[eligible], prediction.hidden[eligible]
    centroids = cluster_by_class(points, classes, num_classes, config.prototypes, generator)
    scores = (
        prototype_scores(points, classes, centroids)
        - config.coverage_penalty * times_selected[eligible]
    )
    ptr = ptr_of_rows(classes, num_classes)
    rank = rank_in_row(scores, ptr)
    if config.labelled_first:
        rank = rank_in_row((labels[eligible] >= 0).double() * num_nodes - rank, ptr)
    quotas = class_quotas(ptr[1:] - ptr[:-1], budget)
    return eligible[rank < quotas[classes]].sort().values


def node_budget(num_nodes: int, ratio: float) -> int:
    """K = ceil(r |V|), robust to the binary rounding of r."""
    return int(-(-round(ratio * num_nodes, 9) // 1))
