"""Mini-batch k-means in every class at once."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

_STEPS = 10
_BATCH = 4096


def cluster_by_class(
    points: Float[Tensor, "m h"],
    classes: Int64[Tensor, "m"],
    num_classes: int,
    most: int,
    generator: torch.Generator,
) -> Float[Tensor, "C P h"]:
    """Cluster({z_v : y~_v = c}; P_c): mini-batch k-means (Sculley 2010) with k-means++ seeding.

    Parameters
    ----------
    points : [m, h]; classes : [m] int64 in 0..C-1; most : P
    generator : a CPU generator; the only source of randomness

    Returns
    -------
    [C, P, h] centroids; NaN rows where P_c = min(P, |V_c|) < P
    """
    centroids = _seed(points, classes, num_classes, most, generator)
    counts = points.new_zeros(num_classes, most)
    for _ in range(_STEPS):
        batch, owner = points, classes
        if points.size(0) > _BATCH:
            pick = torch.randint(points.size(0), (_BATCH,), generator=generator).to(points.device)
            batch, owner = points[pick], classes[pick]
        nearest = _squared_distances(batch, owner, centroids).argmin(dim=1)
        slot = owner * most + nearest
        hits = points.new_zeros(num_classes * most).index_add_(
            0, slot, torch.ones_like(batch[:, 0])
        )
        sums = points.new_zeros(num_classes * most, points.size(1)).index_add_(0, slot, batch)
        hits, sums = hits.view_as(counts), sums.view_as(centroids)
        counts = counts + hits
        # Running mean of all points ever assigned to a centroid: its learning rate is 1 / count.
        step = (sums - hits[..., None] * centroids) / counts.clamp(min=1)[..., None]
        centroids = centroids + step
    return centroids


def _seed(
    points: Tensor, classes: Tensor, num_classes: int, most: int, generator: torch.Generator
) -> Tensor:
    """Draw P_c distinct points per class: k-means++ (Arthur and Vassilvitskii 2007); [C, P, h].

    The chance of a point is proportional to its squared distance to those drawn before. One race
    per draw serves all classes: the argmax of log(weight) + Gumbel noise within each class.
    """
    sizes = torch.bincount(classes, minlength=num_classes)
    order = torch.sort(classes, stable=True).indices
    start = sizes.cumsum(0) - sizes
    column = torch.arange(points.size(0), device=points.device) - start[classes[order]]
    centroids = points.new_full((num_classes, most, points.size(1)), float("nan"))
    distance = points.new_full((points.size(0),), float("inf"))
    used = torch.zeros(points.size(0), dtype=torch.bool, device=points.device)
    for slot in range(most):
        uniform = (
            torch.rand(points.size(0), generator=generator).to(points.device).clamp(1e-9, 1 - 1e-9)
        )
        gumbel = -torch.log(-torch.log(uniform))
        log_weight = torch.log(distance.clamp(1e-12, 1e12)).masked_fill(used, float("-inf"))
        race = points.new_full((num_classes, int(sizes.max())), float("-inf"))
        race[classes[order], column] = (log_weight + gumbel)[order]
        alive = torch.nonzero(sizes > slot).flatten()
        chosen = order[start[alive] + race[alive].argmax(dim=1)]
        used[chosen] = True
        centroids[alive, slot] = points[chosen]
        gap = (points - centroids[classes, slot]).square().sum(dim=1)
        distance = torch.minimum(distance, gap.nan_to_num(nan=float("inf")))
    return centroids


def _squared_distances(points: Tensor, classes: Tensor, centroids: Tensor) -> Tensor:
    """Return ||z_v - p||^2 to the prototypes of v's class, [m, P]; inf where there is none."""
    gap = points.square().sum(1)[:, None, None] - 2 * torch.einsum("mh,cph->mcp", points, centroids)
    gap = gap + centroids.square().sum(2)[None]
    return gap[torch.arange(points.size(0), device=points.device), classes].nan_to_num(
        nan=float("inf")
    )
