"""What the edges of a graph hold beside their ends: weights and texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import DataError

Nodes = NDArray[np.int64]
# (indptr, indices), the neighbour lists of a graph.
Csr = tuple[Nodes, Nodes]
# [2E] in the order of `indices`; None = all 1.
Weights = NDArray[np.float32] | None


@dataclass(frozen=True)
class EdgeTexts:
    """The texts of edges, in the order of the file; an edge may have several, or none.

    Attributes
    ----------
    source, target : [m] int64, rows of the two nodes of each text, which differ
    texts : m strings, none of them empty or white space alone
    """

    source: Nodes
    target: Nodes
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, source: Nodes, target: Nodes, texts: Sequence[str]) -> "EdgeTexts | None":
        """Return the texts that say something; None if no edge has one.

        An edge that the file lists twice, or in both directions, keeps all of its texts. The text
        of a self loop is dropped with the loop.
        """
        rows = [row for row in np.flatnonzero(source != target).tolist() if texts[row].strip()]
        if not rows:
            return None
        return cls(source[rows], target[rows], tuple(texts[row] for row in rows))

    def between(self, place: Nodes, group: Nodes | None = None) -> "EdgeTexts | None":
        """Return the texts of edges whose two nodes stay, and stay together; None without any.

        Parameters
        ----------
        place : [n] int64, the new row of each node, negative = left out
        group : [n] int64, nodes of different groups are apart; None = all of one
        """
        keep = (place[self.source] >= 0) & (place[self.target] >= 0)
        if group is not None:
            keep &= group[self.source] == group[self.target]
        rows = np.flatnonzero(keep)
        if not len(rows):
            return None
        texts = tuple(self.texts[row] for row in rows.tolist())
        return EdgeTexts(place[self.source[rows]], place[self.target[rows]], texts)


def csr_weights(csr: Csr, source: Nodes, target: Nodes, weights: Weights) -> Weights:
    """Return the weight of every entry of neighbour lists; [2E] float32, symmetric.

    Weights of an edge that is listed several times, in one direction or in both, are summed: two
    observations of a relation count as much as one of twice the weight.

    Parameters
    ----------
    csr : of the graph
    source, target, weights : [m] the listed edges; self loops are not read, and every entry of
        `csr` is among them
    """
    if weights is None:
        return None
    keep = source != target
    n = len(csr[0]) - 1
    # Once per pair and not per direction, so that both entries are the same to the last bit.
    pairs, number = np.unique(pair_codes(source[keep], target[keep], n), return_inverse=True)
    sums = np.bincount(number, weights[keep].astype(np.float64), minlength=len(pairs))
    entries = np.searchsorted(pairs, pair_codes(csr_rows(csr[0]), csr[1], n))
    return sums[entries].astype(np.float32)


def csr_rows(indptr: Nodes) -> Nodes:
    """Return the row of every entry of neighbour lists, [2E] int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def pair_codes(source: Nodes, target: Nodes, num_nodes: int) -> Nodes:
    """Return low * n + high of each pair of nodes: the same number in both directions."""
    return np.minimum(source, target) * np.int64(num_nodes) + np.maximum(source, target)


def check_attributes(
    weights: Weights, texts: EdgeTexts | None, size: tuple[int, int], name: str
) -> None:
    """Check the weights and texts of a graph's edges."""
    where, nodes = f"graph {name!r}", size[0]
    if weights is not None:
        check_weights(weights, size[1], where)
    if texts is not None:
        ends = np.concatenate([texts.source, texts.target])
        low, high = ends.min(initial=0), ends.max(initial=0)
        if len(ends) != 2 * len(texts) or low < 0 or high >= nodes:
            raise DataError(
                f"{where}: expected two nodes in 0..{nodes - 1} for each of {len(texts)} texts of "
                f"edges, found {len(ends)} in {low}..{high}"
            )


def check_weights(weights: NDArray[np.float32], size: int, where: str) -> None:
    """Check that there are `size` weights of edges, finite and not negative."""
    if weights.shape != (size,):
        raise DataError(f"{where}: expected {size} weights of edges, found {list(weights.shape)}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"{where}: expected finite weights of edges >= 0, found {weights[wrong[0]]} in row "
            f"{wrong[0] + 1}; correct it, or import the graph without its weights"
        )
