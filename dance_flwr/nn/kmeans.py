"""Mini-batch k-means in every class at once."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.sums import sums_at

# Why fixed numbers of steps and points: the cost of a condensation does not grow with m.
_STEPS = 10
_BATCH = 4096
_MAX_SEEDED = 16_384  # points among which centroids are seeded


def cluster_by_class(
    points: Float[Tensor, "m h"],
    classes: Int64[Tensor, "m"],
    num_classes: int,
    prototypes: int,
    generator: torch.Generator,
) -> Float[Tensor, "C P h"]:
    """Cluster({z_v : y~_v = c}; P_c): mini-batch k-means (Sculley 2010) with k-means++ seeding.

    Seeds come from at most 16,384 points and each step reads at most 4096, so that the cost does
    not grow with m.

    Parameters
    ----------
    points : [m, h]; classes : [m] int64 in 0..C-1; prototypes : P
    generator : a CPU generator; the only source of randomness

    Returns
    -------
    [C, P, h] centroids; NaN rows where P_c = min(P, |V_c|) < P
    """
    if not points.size(0):
        return points.new_full((num_classes, prototypes, points.size(1)), float("nan"))
    start, owner = points, classes
    if points.size(0) > _MAX_SEEDED:
        # Why by class: a rare class has its seeds too, at least one per prototype if it has as many
        # points.
        seeds = sample_by_class(classes, max(prototypes, _MAX_SEEDED // num_classes), generator)
        # Centroids and their sums are float32, whatever the type of the points.
        start, owner = points[seeds].float(), classes[seeds]
    centroids = _seed(start, owner, num_classes, prototypes, generator)
    counts = centroids.new_zeros(num_classes, prototypes)
    for _ in range(_STEPS):
        batch, owner = points, classes
        if points.size(0) > _BATCH:
            pick = torch.randint(points.size(0), (_BATCH,), generator=generator).to(points.device)
            batch, owner = points[pick].to(centroids.dtype), classes[pick]
        # A prototype that does not exist is farther away than any other.
        gap = squared_distances(batch, owner, centroids).nan_to_num(nan=float("inf"))
        nearest = gap.argmin(dim=1)
        slot = owner * prototypes + nearest
        hits = sums_at(torch.ones_like(batch[:, 0]), slot, num_classes * prototypes)
        sums = sums_at(batch, slot, num_classes * prototypes)
        hits, sums = hits.view_as(counts), sums.view_as(centroids)
        counts = counts + hits
        # Running mean of all points ever assigned to a centroid: its learning rate is 1 / count.
        step = (sums - hits[..., None] * centroids) / counts.clamp(min=1)[..., None]
        centroids = centroids + step
    return centroids


def sample_by_class(
    classes: Int64[Tensor, "m"], max_points: int, generator: torch.Generator
) -> Int64[Tensor, "s"]:
    """Return at most `max_points` random points of every class, [s] int64 ascending."""
    order = torch.randperm(classes.numel(), generator=generator).to(classes.device)
    # A stable sort by class of a permutation: random order within each class.
    order = order[torch.sort(classes[order], stable=True).indices]
    sizes = torch.bincount(classes)
    first = (sizes.cumsum(0) - sizes)[classes[order]]
    rank = torch.arange(order.numel(), device=order.device) - first
    return order[rank < max_points].sort().values


def _seed(
    points: Tensor, classes: Tensor, num_classes: int, prototypes: int, generator: torch.Generator
) -> Tensor:
    """Draw P_c distinct points per class: k-means++ (Arthur and Vassilvitskii 2007); [C, P, h].

    The chance of a point is proportional to its squared distance to those drawn before. One race
    per draw serves all classes: the argmax of log(weight) + Gumbel noise within each class.
    """
    sizes = torch.bincount(classes, minlength=num_classes)
    order = torch.sort(classes, stable=True).indices
    start = sizes.cumsum(0) - sizes
    column = torch.arange(points.size(0), device=points.device) - start[classes[order]]
    centroids = points.new_full((num_classes, prototypes, points.size(1)), float("nan"))
    distance = points.new_full((points.size(0),), float("inf"))
    used = torch.zeros(points.size(0), dtype=torch.bool, device=points.device)
    for slot in range(prototypes):
        # Away from 0, whose Gumbel number is -inf.
        uniform = (
            torch.rand(points.size(0), generator=generator).to(points.device).clamp(1e-9, 1 - 1e-9)
        )
        gumbel = -torch.log(-torch.log(uniform))
        # Clamped, so that first draws are uniform and a class of equal points still has all its
        # seeds.
        log_weight = torch.log(distance.clamp(1e-12, 1e12)).masked_fill(used, float("-inf"))
        race = points.new_full((num_classes, int(sizes.max())), float("-inf"))
        race[classes[order], column] = (log_weight + gumbel)[order]
        # P_c = min(P, |V_c|): a smaller class has no more draws.
        alive = torch.nonzero(sizes > slot).flatten()
        chosen = order[start[alive] + race[alive].argmax(dim=1)]
        used[chosen] = True
        centroids[alive, slot] = points[chosen]
        gap = (points - centroids[classes, slot]).square().sum(dim=1)
        distance = torch.minimum(distance, gap.nan_to_num(nan=float("inf")))
    return centroids


def squared_distances(
    points: Float[Tensor, "m h"], classes: Int64[Tensor, "m"], centroids: Float[Tensor, "C P h"]
) -> Float[Tensor, "m P"]:
    """||z_v - p||^2 to the prototypes of v's own class, [m, P]; NaN where there is none."""
    product = class_products(points, classes, centroids)
    length = centroids.square().sum(2)[classes]
    return points.square().sum(1, keepdim=True) - 2 * product + length


def class_products(
    points: Float[Tensor, "m h"], classes: Int64[Tensor, "m"], centroids: Float[Tensor, "C P h"]
) -> Float[Tensor, "m P"]:
    """<z_v, p> for the prototypes of v's own class, [m, P]; NaN where there is none.

    One matrix product with all prototypes, of which each point takes those of its class: cheaper
    than gathering P vectors per point.
    """
    products = (points @ centroids.flatten(0, 1).T).view(len(points), *centroids.shape[:2])
    return products[torch.arange(len(points), device=points.device), classes]
