"""Sec. 3.2 and Alg. 2: label-aware node condensation."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.nn.ragged import ptr_of_rows, rank_in_row

UNASSIGNED = -1
_KMEANS_STEPS = 10
_KMEANS_BATCH = 4096


@dataclass(frozen=True)
class Prediction:
    """What the last-round global model says of every local node.

    Attributes
    ----------
    hidden : [n, h] z_v = g_v, the embedding of the plain pass
    probs : [n, C] p(y | v)
    """

    hidden: Tensor
    probs: Tensor

    def confidence(self) -> Tensor:
        """pi_v = max_c p(c | v), [n] in [0, 1]."""
        return self.probs.max(dim=1).values

    def difficulty(self) -> Tensor:
        """eq:difficulty: u_v = -sum_c p(c | v) log p(c | v), [n] nats, with 0 log 0 = 0."""
        return -torch.xlogy(self.probs, self.probs).sum(dim=1)


def pseudo_labels(prediction: Prediction, labels: Tensor, threshold: float) -> Tensor:
    """eq:pseudo_label: y_v if labelled, the predicted class if pi_v >= tau, else `UNASSIGNED`; [n]
    int64.

    Labelled nodes always count. Alg. 2 would filter them by confidence too; the equation does not,
    and with an untrained model the algorithm's filter leaves the first core nearly empty.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where unknown
    threshold : tau
    """
    guessed = torch.where(
        prediction.confidence() >= threshold, prediction.probs.argmax(dim=1), UNASSIGNED
    )
    return torch.where(labels >= 0, labels, guessed)


def class_quotas(sizes: Tensor, budget: int) -> Tensor:
    """Largest remainder: K_c = floor(K |V_c| / N_conf), then +1 for the largest fractions; [C]
    int64.

    Empty classes get nothing and their share goes to the others; ties go to the lower class index.
    A quota never exceeds its class, so the sum is min(budget, N_conf).

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


def cluster_by_class(
    points: Tensor, classes: Tensor, num_classes: int, most: int, generator: torch.Generator
) -> Tensor:
    """Cluster({z_v : y~_v = c}; P_c) for all classes at once: mini-batch k-means (Sculley 2010),
    k-means++ seeded.

    Parameters
    ----------
    points : [m, h]; classes : [m] int64 in 0..C-1; most : P
    generator : a CPU generator; the only source of randomness

    Returns
    -------
    [C, P, h] centroids; NaN rows where P_c = min(P, |V_c|) < P
    """
    centroids = _kmeans_plus_plus(points, classes, num_classes, most, generator)
    counts = points.new_zeros(num_classes, most)
    for _ in range(_KMEANS_STEPS):
        batch, owner = points, classes
        if points.size(0) > _KMEANS_BATCH:
            pick = torch.randint(points.size(0), (_KMEANS_BATCH,), generator=generator).to(
                points.device
            )
            batch, owner = points[pick], classes[pick]
        nearest = _squared_distances(batch, owner, centroids).argmin(dim=1)
        slot = owner * most + nearest
        hits = points.new_zeros(num_classes * most).index_add_(
            0, slot, torch.ones_like(batch[:, 0])
        )
        sums = points.new_zeros(num_classes * most, points.size(1)).index_add_(0, slot, batch)
        hits, sums = hits.view_as(counts), sums.view_as(centroids)
        counts = counts + hits
        # Running mean of all points a centroid ever took: the per-centre learning rate 1 / count.
        step = (sums - hits[..., None] * centroids) / counts.clamp(min=1)[..., None]
        centroids = centroids + step
    return centroids


def prototype_scores(points: Tensor, classes: Tensor, centroids: Tensor) -> Tensor:
    """eq:proto_score: s_v = max over prototypes of v's class of cos(z_v, p); [m] in [-1, 1].

    Rounded to six decimals: nodes that are their own prototype tie at 1, and a tie must go to the
    lower index rather than to the last bit of a sum.
    """
    cosine = torch.einsum("mh,cph->mcp", F.normalize(points, dim=1), F.normalize(centroids, dim=2))
    own = cosine[torch.arange(points.size(0), device=points.device), classes]
    return own.nan_to_num(nan=-2.0).max(dim=1).values.round(decimals=6)


def condense_nodes(
    prediction: Prediction,
    labels: Tensor,
    times_selected: Tensor,
    config: DanceConfig,
    ratio: float,
    generator: torch.Generator,
    visible: Tensor | None = None,
) -> Tensor:
    """Alg. 2: the condensed core, at most K = ceil(r |V|) nodes in ascending order; [K] int64.

    Two extensions beside the paper's rule, each with its key: nodes lose `coverage_penalty` per
    earlier selection, so that the cores of successive rounds cover the labelled nodes; and
    `labelled_first` fills a class's quota with labelled nodes before others, since only they enter
    the cross-entropy. `core_rule` "random" is the ablation without node condensation: K nodes drawn
    evenly from all. A client with no assigned node at all takes every node under its predicted
    class.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where unknown
    times_selected : [n], how often each node was in a core before
    ratio : r, of all local nodes
    visible : [n] bool, the nodes that |V| and the core are drawn from; all where left out
    """
    num_nodes, num_classes = prediction.probs.shape
    allowed = torch.ones_like(labels, dtype=torch.bool) if visible is None else visible
    budget = node_budget(int(allowed.sum()), ratio)
    if config.core_rule == "random":
        places = torch.nonzero(allowed).flatten()
        return (
            places[torch.randperm(places.numel(), generator=generator).to(places.device)[:budget]]
            .sort()
            .values
        )
    assigned = pseudo_labels(prediction, labels, config.confidence).masked_fill(
        ~allowed, UNASSIGNED
    )
    if not bool((assigned >= 0).any()):
        assigned = prediction.probs.argmax(dim=1).masked_fill(~allowed, UNASSIGNED)
    # Sorted by class, so that classes are rows of a ragged table.
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


def _kmeans_plus_plus(
    points: Tensor, classes: Tensor, num_classes: int, most: int, generator: torch.Generator
) -> Tensor:
    """Draw P_c distinct points per class, each with probability proportional to its squared
    distance to the others.

    One exponential race per draw serves all classes: argmax of log(weight) + Gumbel noise within
    each class.
    """
    sizes = torch.bincount(classes, minlength=num_classes)
    order = torch.sort(classes, stable=True).indices
    start = sizes.cumsum(0) - sizes
    column = torch.arange(points.size(0), device=points.device) - start[classes[order]]
    centroids = points.new_full((num_classes, most, points.size(1)), float("nan"))
    distance = points.new_full((points.size(0),), float("inf"))
    taken = torch.zeros(points.size(0), dtype=torch.bool, device=points.device)
    for slot in range(most):
        uniform = (
            torch.rand(points.size(0), generator=generator).to(points.device).clamp(1e-9, 1 - 1e-9)
        )
        gumbel = -torch.log(-torch.log(uniform))
        log_weight = torch.log(distance.clamp(1e-12, 1e12)).masked_fill(taken, float("-inf"))
        race = points.new_full((num_classes, int(sizes.max())), float("-inf"))
        race[classes[order], column] = (log_weight + gumbel)[order]
        alive = torch.nonzero(sizes > slot).flatten()
        chosen = order[start[alive] + race[alive].argmax(dim=1)]
        taken[chosen] = True
        centroids[alive, slot] = points[chosen]
        gap = (points - centroids[classes, slot]).square().sum(dim=1)
        distance = torch.minimum(distance, gap.nan_to_num(nan=float("inf")))
    return centroids


def _squared_distances(points: Tensor, classes: Tensor, centroids: Tensor) -> Tensor:
    """Return ||z_v - p||^2 to the prototypes of v's own class, [m, P]; inf where there is none."""
    gap = points.square().sum(1)[:, None, None] - 2 * torch.einsum("mh,cph->mcp", points, centroids)
    gap = gap + centroids.square().sum(2)[None]
    return gap[torch.arange(points.size(0), device=points.device), classes].nan_to_num(
        nan=float("inf")
    )
