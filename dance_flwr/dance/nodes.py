"""Section 4.2 and Alg. 2: label-aware node condensation."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import COVERAGE, RANDOM, RANDOM_LABELLED, DanceConfig
from dance_flwr.dance.queue import Candidates, Queue
from dance_flwr.nn.kmeans import class_products, cluster_by_class, sample_by_class
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, rank_in_row, rows_at

UNASSIGNED = -1
# Why limits (decision 16): scores and prototypes need the memory of a block, whatever n is.
_NODES_PER_BLOCK = 8192
_MAX_CLUSTERED = 65_536


@dataclass(frozen=True)
class Prediction:
    """Output of a global model for every local node.

    Attributes
    ----------
    hidden : [n, h] z_v = g_v, the embedding of the plain pass
    predicted : [n] int64, argmax_c p(c | v)
    confidence : [n] pi_v = max_c p(c | v), in [0, 1]
    difficulty : [n] eq:difficulty, u_v = -sum_c p(c | v) log p(c | v), nats, with 0 log 0 = 0
    classes : C
    """

    hidden: Float[Tensor, "n h"]
    predicted: Int64[Tensor, "n"]
    confidence: Float[Tensor, "n"]
    difficulty: Float[Tensor, "n"]
    classes: int

    @classmethod
    def of(cls, hidden: Float[Tensor, "n h"], probs: Float[Tensor, "n C"]) -> "Prediction":
        """Return the prediction with these probabilities p(y | v)."""
        confidence, predicted = probs.max(dim=1)
        difficulty = -torch.xlogy(probs, probs).sum(dim=1)
        return cls(hidden, predicted, confidence, difficulty, probs.size(1))


def pseudo_labels(
    prediction: Prediction, labels: Int64[Tensor, "n"], threshold: float
) -> Int64[Tensor, "n"]:
    """eq:pseudo_label: y_v if labelled, argmax_c p(c | v) if pi_v >= tau, else `UNASSIGNED`; [n].

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where unknown
    threshold : tau

    Examples
    --------
    >>> probs = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    >>> prediction = Prediction.of(torch.zeros(3, 1), probs)
    >>> pseudo_labels(prediction, torch.tensor([1, -1, -1]), 0.7)
    tensor([ 1, -1,  1])
    """
    # Why labelled nodes always count: Alg. 2 filters them by confidence too, the equation does not,
    # and with an untrained model that filter leaves the first core nearly empty.
    predicted = torch.where(prediction.confidence >= threshold, prediction.predicted, UNASSIGNED)
    return torch.where(labels >= 0, labels, predicted)


def class_quotas(
    sizes: Int64[Tensor, "C"], budget: int, floor: Bool[Tensor, "C"] | None = None
) -> Int64[Tensor, "C"]:
    """K_c = floor(K |V_c| / N_conf), then +1 for the largest fractions; [C] int64.

    The largest-remainder method. Empty classes get nothing, and their share goes to the others;
    ties go to the lower class index. A quota never exceeds the size of its class, so the sum is
    min(budget, N_conf).

    Parameters
    ----------
    sizes : [C] int64, |V_c|
    budget : K in nodes
    floor : [C] bool, classes that get at least one node: it is taken from the class that is
        farthest above its exact share, as long as one has a node to give; none of them is empty;
        None = no class

    Examples
    --------
    >>> class_quotas(torch.tensor([50, 30, 0, 20]), 7)
    tensor([4, 2, 0, 1])
    >>> class_quotas(torch.tensor([90, 8, 2]), 5, torch.tensor([True, True, True]))
    tensor([3, 1, 1])
    """
    total = int(sizes.sum())
    budget = min(budget, total)
    if total == 0:
        return torch.zeros_like(sizes)
    # Why integers: remainders are exact, so that equal ones tie.
    quota = sizes * budget // total
    remainder = sizes * budget - quota * total
    order = torch.sort(remainder, descending=True, stable=True).indices
    quota[order[: budget - int(quota.sum())]] += 1
    least = torch.zeros_like(sizes) if floor is None else floor.long()
    for number in order[quota[order] < least[order]].tolist():
        above = quota * total - sizes * budget
        donor = int(above.masked_fill(quota <= least, -(total**2)).argmax())
        if quota[donor] <= least[donor]:  # fewer nodes than classes
            break
        quota[donor] -= 1
        quota[number] += 1
    return quota


def prototype_scores(
    points: Float[Tensor, "m h"],
    classes: Int64[Tensor, "m"],
    centroids: Float[Tensor, "C P h"],
) -> Float[Tensor, "m"]:
    """eq:proto_score: s_v = max over prototypes of v's class of cos(z_v, p); [m] in [-1, 1].

    Only the prototypes of v's own class count.
    """
    unit = F.normalize(centroids, dim=2)
    cosine = class_products(F.normalize(points.to(unit.dtype), dim=1), classes, unit)
    # Why six decimals: nodes that are their own prototype tie at 1, and the lower index, not the
    # last bit of a sum, must decide a tie.
    return cosine.nan_to_num(nan=-2.0).max(dim=1).values.round(decimals=6)


@dataclass(frozen=True)
class Pool:
    """The n nodes that a core may be selected from.

    Attributes
    ----------
    labels : [n] int64, training labels, -1 where unknown
    times_selected : [n] int64, number of earlier cores that contain each node
    visible : [n] bool, the nodes that make up V; the others never enter a core
    propagated : [n, d] P^2 x^ of the texts, in which `coverage` compares nodes, of any float type;
        None under other rules
    """

    labels: Int64[Tensor, "n"]
    times_selected: Int64[Tensor, "n"]
    visible: Bool[Tensor, "n"]
    propagated: Float[Tensor, "n d"] | None = None


def condense_nodes(
    prediction: Prediction,
    pool: Pool,
    config: DanceConfig,
    ratio: float,
    generator: torch.Generator,
) -> Queue:
    """Alg. 2: the condensed core, K = ceil(r |V|) nodes but at most K_b, and those that follow it.

    Extensions of the paper: `coverage_penalty`, without which the core stays, `labelled_first`,
    `labelled_floor`, `batch_nodes` (K_b), and the other values of `core_rule`: "random" is the
    ablation without node condensation, "random-labelled" draws labelled nodes under the same
    quotas, and "coverage" is facility location within the class.

    Parameters
    ----------
    ratio : r, of the visible nodes
    """
    labels, visible = pool.labels, pool.visible
    count = int(visible.sum())
    whole, budget = node_budget(count, ratio), core_budget(count, ratio, config.batch_nodes)
    if config.rule == RANDOM:
        nodes = torch.nonzero(visible).flatten()
        nodes = nodes[torch.randperm(nodes.numel(), generator=generator).to(nodes.device)]
        return Queue.of_one_class(nodes if config.core_moves else nodes[:whole], budget)
    assigned = pseudo_labels(prediction, labels, config.confidence)
    assigned = assigned.masked_fill(~visible, UNASSIGNED)
    # A client without labels and without confident predictions has a core all the same.
    if not bool((assigned >= 0).any()):
        assigned = prediction.predicted.masked_fill(~visible, UNASSIGNED)
    # Sorted by class, so that classes are rows of a ragged table; stable: ties go to lower nodes.
    eligible = torch.nonzero(assigned >= 0).flatten()
    eligible = eligible[torch.sort(assigned[eligible], stable=True).indices]
    classes, known = assigned[eligible], labels[eligible] >= 0
    ptr = ptr_of_rows(classes, prediction.classes)
    sizes, labelled = ptr.diff(), torch.bincount(classes[known], minlength=prediction.classes)
    # Alg. 2: K_c, then the best K_c nodes of each class.
    # Why a floor (decision 7): a class that is in no core is in no cross-entropy of a client.
    floor = labelled > 0 if config.labelled_floor else None
    quotas = class_quotas(sizes, budget, floor)
    # In a core that stays, the part of a class is its share of K, and K_b nodes take turns.
    if not config.core_moves:
        parts = torch.maximum(quotas, class_quotas(sizes, whole, floor))
    elif config.labelled_first:
        # Why labelled nodes alone (decision 7): others add nothing to the cross-entropy.
        parts = torch.where(labelled >= quotas, labelled, sizes)
    else:
        parts = sizes
    candidates = Candidates(Ragged(ptr, eligible), quotas, parts)
    return _queue_of(candidates, prediction, pool, config, generator)


def _queue_of(
    candidates: Candidates,
    prediction: Prediction,
    pool: Pool,
    config: DanceConfig,
    generator: torch.Generator,
) -> Queue:
    nodes, ptr, classes = candidates.nodes.index, candidates.nodes.ptr, candidates.nodes.rows()
    known, times = pool.labels[nodes] >= 0, pool.times_selected[nodes]
    if config.rule == COVERAGE:
        # Imported here: no other rule needs it.
        from dance_flwr.dance.coverage import cover

        assert pool.propagated is not None
        # The precedence that the ranks below have, in one number per node.
        tiers = times if config.coverage_penalty > 0 else torch.zeros_like(times)
        if config.labelled_first:
            tiers = tiers + (~known).long() * (tiers.sum() + 1)
        return candidates.queue(*cover(pool.propagated, candidates, tiers, generator))
    if config.rule == RANDOM_LABELLED:
        scores = torch.rand(len(nodes), generator=generator).to(nodes.device)
    else:
        scores = _scores(prediction, nodes, classes, config.prototypes, generator)
    # Why (decision 7): so that successive cores cover the labelled nodes.
    rank = rank_in_row(scores - config.coverage_penalty * times, ptr)
    if config.labelled_first:
        # Why labelled nodes first (decision 7): only they enter the cross-entropy. Both parts stay
        # in the order of their scores.
        rank = rank_in_row(known.double() * pool.labels.numel() - rank, ptr)
    return candidates.queue(rank)


def _scores(
    prediction: Prediction,
    nodes: Int64[Tensor, "m"],
    classes: Int64[Tensor, "m"],
    prototypes: int,
    generator: torch.Generator,
) -> Float[Tensor, "m"]:
    hidden, count = prediction.hidden, prediction.classes
    sample = torch.arange(nodes.numel(), device=nodes.device)
    if nodes.numel() > _MAX_CLUSTERED:
        sample = sample_by_class(classes, max(prototypes, _MAX_CLUSTERED // count), generator)
    points = rows_at(hidden, nodes[sample])
    centroids = cluster_by_class(points, classes[sample], count, prototypes, generator)
    blocks = (torch.split(entries, _NODES_PER_BLOCK) for entries in (nodes, classes))
    pairs = zip(*blocks, strict=True)
    return torch.cat([prototype_scores(rows_at(hidden, v), c, centroids) for v, c in pairs])


def core_budget(num_nodes: int, ratio: float, max_nodes: int) -> int:
    """Return the size of a round's core: ceil(r |V|), at most `max_nodes` (K_b; 0 = no limit)."""
    budget = node_budget(num_nodes, ratio)
    return min(budget, max_nodes) if max_nodes else budget


def rounds_per_condensation(num_nodes: int, ratio: float, max_nodes: int, every: int) -> int:
    """Rounds until nodes are condensed again: `every`, but at least as many as K / K_b.

    Parameters
    ----------
    max_nodes : K_b, 0 = no limit; every : 0 = never again

    Examples
    --------
    >>> [rounds_per_condensation(n, 0.08, 256, 10) for n in (1000, 1_000_000)]
    [10, 313]
    """
    # Why (decision 16): so the pass over all n nodes, which a condensation costs, is spread over
    # the rounds that train on r n nodes, and the mean cost of a round does not grow with n.
    budget = node_budget(num_nodes, ratio)
    return max(every, -(-budget // max_nodes)) if every and max_nodes else every


def node_budget(num_nodes: int, ratio: float) -> int:
    """K = ceil(r |V|), robust to the binary rounding of r.

    Examples
    --------
    >>> node_budget(100, 0.07)  # 0.07 * 100 is 7.000000000000001
    7
    """
    return int(-(-round(ratio * num_nodes, 9) // 1))
