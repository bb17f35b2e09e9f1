"""Mini-batch k-means in every class at once."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

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
    counts = centroids.new_zeros(num_classes, prototypes, 1)
    batch, owner, large = points, classes, points.size(0) > _BATCH
    for step in range(_STEPS):
        if large:
            pick = torch.randint(points.size(0), (_BATCH,), generator=generator).to(points.device)
            batch, owner = points[pick].to(centroids.dtype), classes[pick]
        if large or not step:
            # A column of ones, whose sums are numbers of points.
            counted, length = F.pad(batch, (0, 1), value=1), batch.square().sum(1, keepdim=True)
            first = owner * prototypes
        # ||z_v - p||^2. A prototype that does not exist is farther away than any other.
        product, norms = class_products(batch, owner, centroids), centroids.square().sum(2)
        gap = length - 2 * product + norms[owner]
        slot = first + gap.nan_to_num_(nan=float("inf")).argmin(dim=1)
        found = sums_at(counted, slot, num_classes * prototypes).view(num_classes, prototypes, -1)
        sums, hits = found[..., :-1], found[..., -1:]
        counts = counts + hits
        # Running mean of all points ever assigned to a centroid: its learning rate is 1 / count.
        centroids = centroids + (sums - hits * centroids) / counts.clamp(min=1)
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
    sizes, size = torch.bincount(classes, minlength=num_classes), points.size(0)
    order = torch.sort(classes, stable=True).indices
    start, widest = sizes.cumsum(0) - sizes, int(sizes.max())
    # The place of every point in a table with a row per class.
    shift = torch.arange(num_classes, device=points.device) * widest - start
    place = torch.empty_like(order)
    place[order] = torch.arange(size, device=points.device) + shift[classes[order]]
    start = start.clamp(max=size - 1)
    # One point more, of NaN, for classes without a further one.
    several = F.pad(points, (0, 0, 0, 1), value=float("nan"))
    distance = points.new_full((size,), float("inf"))
    # Away from 0, whose Gumbel number is -inf.
    uniform = torch.rand(prototypes, size, generator=generator).clamp(1e-9, 1 - 1e-9)
    gumbel = F.pad(-torch.log(-torch.log(uniform.to(points.device))), (0, 1))
    seeds = []
    for slot, noise in enumerate(gumbel):
        # Clamped, so that first draws are uniform and a class of equal points still has all its
        # seeds.
        log_weight = torch.log(distance.clamp(1e-12, 1e12))
        race = points.new_full((num_classes, widest), float("-inf"))
        race.view(-1)[place] = log_weight + noise[:-1]
        # P_c = min(P, |V_c|): a smaller class has no more draws.
        chosen = torch.where(sizes > slot, order[start + race.argmax(dim=1)], size)
        gumbel[:, chosen] = float("-inf")  # drawn once
        seeds.append(several[chosen])
        gap = (points - seeds[-1][classes]).square().sum(dim=1)
        distance = torch.minimum(distance, gap.nan_to_num(nan=float("inf")))
    return torch.stack(seeds, dim=1)


def class_products(
    points: Float[Tensor, "m h"], classes: Int64[Tensor, "m"], centroids: Float[Tensor, "C P h"]
) -> Float[Tensor, "m P"]:
    """<z_v, p> for the prototypes of v's own class, [m, P]; NaN where there is none.

    One matrix product with all prototypes, then those of each point's class: cheaper than gathering
    P vectors per point.
    """
    products = (points @ centroids.flatten(0, 1).T).view(len(points), *centroids.shape[:2])
    return products[torch.arange(len(points), device=points.device), classes]
