"""Section 4.4 and Alg. 4: self-expressive topology reconstruction on the condensed core."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.pairs import Pairs
from dance_flwr.dance.passes import DanceClient
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.text import condensed_text
from dance_flwr.nn.lasso import Lassos, solve_lassos
from dance_flwr.nn.ragged import ptr_of_rows, rank_in_row

_ROWS_PER_BLOCK = 1024
_NODES_PER_GROUP = 128

# (rows, cols, weights) of a weighted graph.
Edges = tuple[Int64[Tensor, "E"], Int64[Tensor, "E"], Float[Tensor, "E"]]


@dataclass(frozen=True)
class Coefficients:
    """Sparse Z of X ~ XZ: column i is supported on C(i).

    Attributes
    ----------
    support : [K, s] int64, C(i) in row i, -1 where padded; s <= 2q
    values : [K, s] float32, Z[C(i), i]; 0 where padded
    """

    support: Int64[Tensor, "K s"]
    values: Float[Tensor, "K s"]


@torch.no_grad()
def core_edges(
    client: DanceClient,
    hidden: Float[Tensor, "m h"],
    selection: Selection,
    cores: Int64[Tensor, "T K"],
) -> tuple[Edges, ...]:
    """Return the edges of each condensed graph by `topology_rule`: rebuilt, induced, or none.

    Parameters
    ----------
    hidden : [m, h] g_v of the nodes of `selection`, which are those of all cores
    cores : [T, K] int64 nodes of each core
    """
    model, settings = client.model, client.settings
    if settings.topology_rule == "induced":
        return tuple(client.graph.induced_edges(core) for core in cores)
    if settings.topology_rule != "self-expressive":
        none = selection.nodes.new_empty(0)
        return tuple((none, none, hidden.new_empty(0)) for _ in cores)
    text, fused_text = condensed_text(client, selection)
    fused = model.fuse(hidden, fused_text)
    # Why the plain view, or else the fused one (decision 19): the one that the loss trains.
    logits = model.graph_logits(hidden) if settings.plain_weight else model.fused_logits(fused)
    labels = client.data.train_labels[selection.nodes]
    classes = torch.where(labels >= 0, labels, logits.argmax(dim=1))
    if len(cores) == 1:
        return (connect(fused, text, classes, settings),)
    rows = torch.searchsorted(selection.nodes, cores)
    if settings.candidate_search == "exact":
        return tuple(connect(fused[i], text[i], classes[i], settings) for i in rows)
    # One call for all cores, in which nodes of two cores are in no class together.
    count, size = rows.shape
    core = torch.arange(count, device=rows.device).repeat_interleave(size)
    apart = classes[rows.flatten()] + core * (classes.max() + 1)
    edges = connect(fused[rows.flatten()], text[rows.flatten()], apart, settings)
    sizes = torch.bincount(core[edges[0]], minlength=count).tolist()
    parts = (torch.split(part, sizes) for part in edges)
    return tuple(
        (row - start * size, col - start * size, weight)
        for start, (row, col, weight) in enumerate(zip(*parts, strict=True))
    )


def connect(
    fused: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K t"],
    classes: Int64[Tensor, "K"],
    settings: DanceConfig,
) -> Edges:
    """Alg. 4: the adjacency on nodes of fused features x_v; X has columns x_v / ||x_v||, or 0."""
    # Why unit norms (decision 17): layer-normalised x_v have ||x_v||^2 near their width d; at that
    # scale the data term exceeds beta and the prior d times, and neither changes the graph.
    features = functional.normalize(fused, dim=1)
    support, pairs = find_candidates(features, evidence, classes, settings)
    z = self_express(features, evidence, support, settings, pairs)
    return synthesise_adjacency(z, settings.neighbours)


def find_candidates(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K t"],
    classes: Int64[Tensor, "K"],
    settings: DanceConfig,
) -> tuple[Int64[Tensor, "K s"], Pairs | None]:
    """eq:candidate_set by `candidate_search`, [K, s] int64, -1 where padded; its products."""
    if settings.candidate_search == "exact":
        return candidate_support(features, evidence, settings.candidates), None
    return support_in_class(features, evidence, classes, settings.candidates)


def support_in_class(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K t"],
    classes: Int64[Tensor, "K"],
    max_candidates: int,
) -> tuple[Int64[Tensor, "K s"], Pairs]:
    """eq:candidate_set with j in i's group: at most 128 nodes of its class; [K, s] int64, products.

    O(K (128 d + log K)). Parameters as in `candidate_support`; classes : [K] int64.
    """
    # Why groups (decision 16): no K x K. A class larger than a group is cut along the first
    # principal direction of x, so that the nodes of a group are similar.
    order = _by_class_and_direction(features, classes)
    place, inside = _groups(classes[order])
    member = torch.where(inside, order[place.clamp(max=len(order) - 1)], -1)
    pairs = Pairs.of(features, evidence, member)
    return _without_repetition(pairs.nearest(max_candidates)), pairs


def _by_class_and_direction(features: Tensor, classes: Tensor) -> Tensor:
    """Return the nodes sorted by class, and in it by the first principal direction; [K] int64."""
    # Classes that fit into a group are not cut, so that their order does not matter.
    if len(classes) <= _NODES_PER_GROUP or int(torch.bincount(classes).max()) <= _NODES_PER_GROUP:
        return torch.sort(classes, stable=True).indices
    centred = features - features.mean(0)
    direction = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
    order = torch.sort(centred @ direction, stable=True).indices
    return order[torch.sort(classes[order], stable=True).indices]


def _groups(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the members of each group and a mask, [groups, widest] each.

    A class of m nodes, adjacent in `classes`, makes ceil(m / 128) groups of nearly equal size.
    """
    counts = torch.unique_consecutive(classes, return_counts=True)[1]
    parts = -(-counts // _NODES_PER_GROUP)
    owner = torch.repeat_interleave(torch.arange(len(counts), device=classes.device), parts)
    number = torch.arange(len(owner), device=classes.device) - (parts.cumsum(0) - parts)[owner]
    low = number * counts[owner] // parts[owner]
    high = (number + 1) * counts[owner] // parts[owner]
    start = (counts.cumsum(0) - counts)[owner] + low
    widest = int((high - low).max()) if len(owner) else 0
    column = torch.arange(widest, device=classes.device)
    return start[:, None] + column, column < (high - low)[:, None]


def _without_repetition(support: Tensor) -> Tensor:
    union = support.sort(dim=1).values
    repeated = torch.zeros_like(union, dtype=torch.bool)
    repeated[:, 1:] = union[:, 1:] == union[:, :-1]
    return union.masked_fill(repeated, -1)


def candidate_support(
    features: Float[Tensor, "K d"], evidence: Float[Tensor, "K t"], max_candidates: int
) -> Int64[Tensor, "K s"]:
    """eq:candidate_set: C(i) = TopK_q(x_i^T x_j) union TopK_q(S_ij), j != i; [K, s] int64.

    Padded with -1; O(block * K) memory.

    Parameters
    ----------
    features : [K, d] x; evidence : [K, t] t~, whose clipped products are S; max_candidates : q
    """
    size = features.size(0)
    width = min(max_candidates, size - 1)
    if width <= 0:
        return torch.full((size, 0), -1, dtype=torch.int64, device=features.device)
    blocks = []
    for start in range(0, size, _ROWS_PER_BLOCK):
        rows = torch.arange(start, min(start + _ROWS_PER_BLOCK, size), device=features.device)
        tops = []
        for scores in (features[rows] @ features.T, prior_block(evidence, rows)):
            # j != i; stable sorts, so that equal scores go to the lower node.
            scores[torch.arange(rows.numel(), device=rows.device), rows] = float("-inf")
            tops.append(torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :width])
        blocks.append(torch.cat(tops, dim=1))
    return _without_repetition(torch.cat(blocks))


def prior_block(evidence: Float[Tensor, "K t"], rows: Int64[Tensor, "b"]) -> Float[Tensor, "b K"]:
    """S[rows, :] with S_ij = clip(<t~_i, t~_j>, 0, 1), symmetric; [b, K]."""
    # Why (decision 4): this is the expected cosine between a chunk of i and one of j,
    # sum_{a,b} pi_ia pi_jb cos(e_a, e_b), as chunk embeddings have unit norm.
    return (evidence[rows] @ evidence.T).clamp(0, 1)


def self_express(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K t"],
    support: Int64[Tensor, "K s"],
    settings: DanceConfig,
    pairs: Pairs | None = None,
) -> Coefficients:
    """eq:self_expressive_sparse on the support, to a relative duality gap.

    min_Z alpha ||X - XZ||_F^2 + beta ||Z||_1 + sum_{i != j} (1 - S_ij) |Z_ij|.

    Columns are independent, so each is a small lasso in its own Gram matrix G_i = X_C(i)^T X_C(i)
    with penalty (beta + 1 - S_ij) / (2 alpha). O(block q^2) memory beside the O(Kq) result.

    Parameters
    ----------
    features : [K, d] x, one node a row (the paper's X has nodes as columns)
    """
    values = torch.zeros(support.shape, dtype=features.dtype, device=features.device)
    everyone = torch.arange(len(support), device=support.device)
    for rows in torch.split(everyone, _ROWS_PER_BLOCK) if support.numel() else ():
        problems = column_problems(features, evidence, support[rows], rows, settings, pairs)
        # Why a tolerance (decision 17): L alone says nothing of the distance to the minimum.
        steps, tolerance = settings.inner_iterations, settings.inner_tolerance
        values[rows] = solve_lassos(problems, steps, tolerance)[0]
    return Coefficients(support, values)


def column_problems(
    features: Float[Tensor, "K d"],
    evidence: Float[Tensor, "K t"],
    support: Int64[Tensor, "b s"],
    columns: Int64[Tensor, "b"],
    settings: DanceConfig,
    pairs: Pairs | None = None,
) -> Lassos:
    """Return eq:self_expressive_sparse / (2 alpha) of these columns; padding has G = b = 0.

    Parameters
    ----------
    pairs : products of every column with its candidates, and of those with each other
    """
    size = features.size(0)
    if pairs is None and size <= min(support.size(1) ** 2, _ROWS_PER_BLOCK):  # fewer products
        pairs = Pairs.of(features, evidence, torch.arange(size, device=support.device)[None])
    energy = features[columns].square().sum(1)
    if pairs is not None:
        gram, target, prior = pairs.problems(support, columns)
        return Lassos(gram, target, energy, (settings.beta + 1 - prior) / (2 * settings.alpha))
    inside, index = support >= 0, support.clamp(min=0)
    near = features[index] * inside[..., None]
    gram = near @ near.mT
    target = (near @ features[columns, :, None]).squeeze(2)
    prior = (evidence[index] @ evidence[columns, :, None]).squeeze(2)
    penalty = settings.beta + 1 - (prior.clamp(0, 1) * inside)
    return Lassos.of(gram, target, energy, penalty / (2 * settings.alpha))


def synthesise_adjacency(z: Coefficients, neighbours: int) -> Edges:
    """eq:adjacency: W = |Z| + |Z|^T, then T_k: the k largest entries of each row, symmetrised.

    An edge stays if it is among the k = `neighbours` of either end, with its weight in W. Ties go
    to the lower column.

    Returns
    -------
    (rows, cols, weights), [E] each, symmetric, no self loops, sorted by row and column; E <= 2 K k

    Examples
    --------
    >>> support = torch.tensor([[1, 2], [0, -1], [-1, -1]])  # Z[1, 0], Z[2, 0] and Z[0, 1]
    >>> z = Coefficients(support, torch.tensor([[0.5, -0.1], [0.2, 0.0], [0.0, 0.0]]))
    >>> [part.tolist() for part in synthesise_adjacency(z, 1)[:2]]
    [[0, 0, 1, 2], [1, 2, 0, 0]]
    """
    size = z.support.size(0)
    filled = (z.support >= 0) & (z.values != 0)
    col_of_z = torch.nonzero(filled)[:, 0]
    row_of_z, weight = z.support[filled], z.values[filled].abs()
    pairs = torch.stack([torch.cat([row_of_z, col_of_z]), torch.cat([col_of_z, row_of_z])])
    doubled = torch.cat([weight, weight])
    # Sums of the two directions; coalesced entries are sorted by row and column, which decides
    # ties.
    merged = torch.sparse_coo_tensor(
        pairs, doubled, (size, size), check_invariants=False
    ).coalesce()
    rows, cols, values = *merged.indices(), merged.values()
    keep = rank_in_row(values, ptr_of_rows(rows, size)) < neighbours
    # An edge that one end keeps is one of both, so that the operator is symmetric.
    key, back = rows * size + cols, cols * size + rows
    keep = keep | torch.isin(key, back[keep])
    return rows[keep], cols[keep], values[keep]
