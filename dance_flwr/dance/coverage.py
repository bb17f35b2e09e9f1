"""Facility location within a class: cores whose nodes stand for the others of their class.

F(S) = sum over v in V_c of the largest s(v, u), u in S, with s(v, u) = (1 + cos(v, u)) / 2 of the
propagated texts P^2 x^. F is monotone and submodular: greedy selection reaches 1 - 1/e of the best
core of its size (Nemhauser et al. 1978), and a gain that was computed earlier bounds every later
one, so that few are computed again (Minoux 1978) and a core of K_c nodes costs about n_c K_c steps
after the similarities. Masses weigh the loss as in CRAIG (Mirzasoleiman et al. 2020).
"""

import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.queue import Candidates
from dance_flwr.nn.ragged import rows_at

# Why a limit (decision 16): the similarities of a class need 16 MB at most, whatever its size.
_MAX_POINTS = 2048
_STEPS = 2**16  # of a similarity in [0, 1]
_BATCH = 64  # gains that are computed at once


def cover(
    table: Float[Tensor, "n d"],
    candidates: Candidates,
    tiers: Int64[Tensor, "m"],
    generator: torch.Generator,
) -> tuple[Int64[Tensor, "m"], Float[Tensor, "m"]]:
    """Return the rank of each candidate in its class, and its mass; [m] each.

    Successive cores of K_c nodes each maximise F greedily among the nodes that are in none before,
    lower tiers first. The mass of a node is the number of nodes of the class that are nearest to
    it among the nodes of its core. Both are exact in classes of at most 2048 nodes. In a larger one
    2048 random nodes stand for V_c, the first 2048 nodes in random order within their tiers are
    searched, and the others follow in that order.

    Parameters
    ----------
    table : P^2 x^ of all nodes, of any float type, on any device
    tiers : precedence, lower values first
    generator : a CPU generator, which large classes alone draw from
    """
    nodes, rank, mass = candidates.nodes, torch.empty_like(tiers), torch.ones(tiers.shape)
    mass = mass.to(tiers.device)
    for number, size in enumerate(nodes.ptr.diff().tolist()):
        row = slice(int(nodes.ptr[number]), int(nodes.ptr[number]) + size)
        order = sample = torch.arange(size, device=tiers.device)
        if size > _MAX_POINTS:
            order = torch.randperm(size, generator=generator).to(tiers.device)
            sample = order[:_MAX_POINTS]
        order = order[torch.sort(tiers[row][order], stable=True).indices]
        quota, part = int(candidates.quotas[number]), int(candidates.parts[number])
        if quota:
            members = nodes.index[row]
            ground = _unit(table, members[sample])
            head = order[:_MAX_POINTS]
            similar = similarities(_unit(table, members[head]), ground)
            chosen = successive_cores(similar, tiers[row][head], quota, min(part, len(head)))
            rest = torch.ones_like(head, dtype=torch.bool)
            rest[chosen] = False
            order = torch.cat([head[chosen], head[rest], order[len(head) :]])
            for first in range(0, part, quota):
                # Cores are cyclic: after the last nodes come the first ones.
                core = order[torch.arange(first, first + quota, device=order.device) % part]
                shares = masses(similarities(_unit(table, members[core]), ground))
                own = core[: part - first]
                # A node of its own core stands for itself at least.
                shares = (shares * (size / len(ground))).clamp(min=1)[: len(own)]
                mass[row][own] = shares.to(mass)
        rank[row][order] = torch.arange(size, device=order.device)
    return rank, mass


def _unit(table: Float[Tensor, "n d"], nodes: Int64[Tensor, "k"]) -> Float[Tensor, "k d"]:
    return F.normalize(rows_at(table, nodes), dim=1)


def similarities(
    points: Float[Tensor, "k d"], ground: Float[Tensor, "g d"]
) -> Int32[Tensor, "k g"]:
    """Return (1 + <u, v>) / 2 of unit vectors, in steps of 2^-16; [k, g]. A vector may be zero."""
    # Why integers: sums are exact in any order, so that equal gains tie, and the lower node wins.
    return ((1 + points @ ground.T).clamp(0, 2) * (_STEPS / 2)).round().int()


def masses(similar: Int32[Tensor, "k g"]) -> Int64[Tensor, "k"]:
    """Return how many of the g nodes are most similar to each of k nodes, ties to the earlier."""
    return torch.bincount(similar.argmax(dim=0), minlength=len(similar))


def successive_cores(
    similar: Int32[Tensor, "k g"], tiers: Int64[Tensor, "k"], quota: int, count: int
) -> Int64[Tensor, "c"]:
    """Return `count` rows: a core of `quota` rows, then one of the rows that remain, and so on.

    Why every core anew: a round trains on one core, and what the cores before it have left open is
    not what represents the class.
    """
    waiting, chosen = torch.ones_like(tiers, dtype=torch.bool), torch.empty_like(tiers[:0])
    while len(chosen) < count:
        core = facility_location(similar, tiers, waiting, min(quota, count - len(chosen)))
        waiting[core] = False
        chosen = torch.cat([chosen, core])
    return chosen


def facility_location(
    similar: Int32[Tensor, "k g"],
    tiers: Int64[Tensor, "k"],
    waiting: Bool[Tensor, "k"],
    count: int,
) -> Int64[Tensor, "c"]:
    """S_t = S_(t-1) + argmax_u F(S_(t-1) + u), over the waiting rows of the lowest tier.

    Exact greedy selection with lazy evaluation; ties go to the lower row.

    Parameters
    ----------
    similar : s(u, v) of k candidates and g nodes to cover
    count : at most the number of waiting rows

    Examples
    --------
    >>> similar = torch.tensor([[9, 8, 0], [8, 9, 0], [0, 1, 9]], dtype=torch.int32)
    >>> facility_location(similar, torch.zeros(3, dtype=torch.int64), torch.ones(3).bool(), 2)
    tensor([0, 2])
    """
    covered = torch.zeros_like(similar[0])
    bound = similar.sum(dim=1)
    fresh, waiting = torch.ones_like(waiting), waiting.clone()
    chosen: list[int] = []
    for _ in range(count):
        lowest = waiting & (tiers == tiers[waiting].min())
        while not fresh[best := int(bound.masked_fill(~lowest, -1).argmax())]:
            # Why in batches: one row costs as much as many.
            stale = bound.masked_fill(~lowest | fresh, -1)
            rows = stale.topk(min(_BATCH, len(bound))).indices
            bound[rows] = (similar[rows] - covered).clamp(min=0).sum(dim=1)
            fresh[rows] = True
        chosen.append(best)
        covered = torch.maximum(covered, similar[best])
        waiting[best], fresh = False, torch.zeros_like(fresh)
    return torch.tensor(chosen, dtype=torch.int64, device=similar.device)
