"""Foreign text: chunks of other nodes mixed into a node's own, without encoding anything again."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.errors import DataError

SEPARATOR = "\n\n"  # between the chunks of a mixed text


@dataclass(frozen=True)
class Mixture:
    """Which chunks each of n nodes has after mixing; those of node i are ptr[i]:ptr[i+1].

    Attributes
    ----------
    rows : int64 [R'], row of each chunk in the slice that was mixed
    foreign : bool [R'], whether it is a chunk of another node
    ptr : int64 [n+1], first chunk of each node
    """

    rows: NDArray[np.int64]
    foreign: NDArray[np.bool_]
    ptr: NDArray[np.int64]


@dataclass(frozen=True)
class MixedTexts:
    """The mixed texts of m nodes.

    Attributes
    ----------
    texts : m texts, the chunks of a node joined by SEPARATOR
    part : their chunks; a span of `texts` is the text of the chunk
    foreign : bool [R], whether a chunk is one of another node
    """

    texts: list[str]
    part: BankSlice
    foreign: NDArray[np.bool_]


def mix(ptr: NDArray[np.int64], ratio: float, seed: int) -> Mixture:
    """Give a node of c chunks f = max(1, round(c p / (1 - p))) foreign ones, and shuffle all.

    Other nodes are drawn uniformly, with replacement. The node takes all chunks of the first, then
    all of the second and so on, until it has f: foreign text is as coherent as its own. A node of
    few chunks may have a larger share of foreign ones than p, as f is at least 1.

    Parameters
    ----------
    ptr : [n+1] first chunk of each node; every node has at least one
    ratio : p, in (0, 1)

    Raises
    ------
    DataError : there are fewer than two nodes
    """
    sizes = np.diff(ptr)
    n = len(sizes)
    if n < 2:
        raise DataError(
            f"foreign-text-ratio: expected at least two nodes with a client, found {n}; set it to 0"
        )
    wanted = np.maximum(1, np.rint(sizes * (ratio / (1 - ratio)))).astype(np.int64)
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"foreign-text")]))
    taker = np.repeat(np.arange(n), wanted)  # a draw gives a chunk or more, so f draws suffice
    drawn = generator.integers(0, n - 1, len(taker))
    drawn += drawn >= taker  # any node but the taker
    total = np.cumsum(sizes[drawn]) - sizes[drawn]
    before = total - total[np.cumsum(wanted) - wanted][taker]  # chunks of the taker's earlier draws
    taken = np.clip(wanted[taker] - before, 0, sizes[drawn])
    rows = np.concatenate([np.arange(ptr[-1]), _ranges(ptr[drawn], taken)])
    node = np.concatenate([np.repeat(np.arange(n), sizes), np.repeat(taker, taken)])
    # A random key shuffles the chunks of a node: no place tells which are foreign.
    order = np.lexsort((generator.random(len(rows)), node))
    ends = np.cumsum(sizes + wanted)
    return Mixture(rows[order], order >= ptr[-1], np.concatenate([[0], ends]).astype(np.int64))


def mixed_texts(
    texts: Sequence[str], part: BankSlice, mixture: Mixture, nodes: NDArray[np.int64]
) -> MixedTexts:
    """Return the mixed texts of `nodes`, with embeddings and token counts copied from `part`."""
    sizes = np.diff(mixture.ptr)[nodes]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = _ranges(mixture.ptr[nodes], sizes)
    rows = mixture.rows[entries]
    owner = np.searchsorted(part.ptr, rows, side="right") - 1
    old = part.spans[rows]
    pieces = [
        texts[node][start:end]
        for node, (start, end) in zip(owner.tolist(), old.tolist(), strict=True)
    ]
    length = (old[:, 1] - old[:, 0]).astype(np.int64)
    step = length + len(SEPARATOR)
    start = np.cumsum(step) - step
    start -= np.repeat(start[ptr[:-1]], sizes)
    return MixedTexts(
        [SEPARATOR.join(pieces[a:b]) for a, b in pairwise(ptr.tolist())],
        BankSlice(
            part.embeddings[rows],
            np.stack([start, start + length], axis=1).astype(np.int32),
            part.tokens[rows],
            ptr,
        ),
        mixture.foreign[entries],
    )


def _ranges(start: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start[0], ..., start[0] + size[0] - 1, start[1], ... as one array, [sum of size]."""
    ends = np.cumsum(size)
    return np.repeat(start - (ends - size), size) + np.arange(int(size.sum()))
