"""Texts of record: a node's own text, then the texts of its edges as further paragraphs.

A client stores, chunks and cites these texts; where each paragraph of an edge lies in them is in
`edge_texts.parquet` of the client's folder.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.card import EDGE_TEXTS, ClientCard
from dance_flwr.data.graphs.edges import EdgeTexts
from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.errors import DataError

if TYPE_CHECKING:  # who reads texts needs no encoder
    from dance_flwr.data.text.bank import TextBank

SEPARATOR = "\n\n"  # before each paragraph of an edge: the chunker ends a sentence at a blank line
_NUMBERS = ("node", "start", "end", "other", "edge")


@dataclass(frozen=True)
class EdgeSpans:
    """Where texts of edges lie in the texts of nodes: two rows per text, by node and place.

    Attributes
    ----------
    node : [2m] int64 row of the node whose text holds it; other : [2m] row of the other end
    start, end : [2m] int64 characters of the node's text, in which it stands as it was given
    edge : [2m] int64, number of the text in the order of the file, the same at both ends
    """

    node: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    other: NDArray[np.int64]
    edge: NDArray[np.int64]

    @cached_property
    def _rows(self) -> dict[int, tuple[int, int]]:
        nodes, first, counts = np.unique(self.node, return_index=True, return_counts=True)
        ends = zip(first.tolist(), (first + counts).tolist(), strict=True)
        return dict(zip(nodes.tolist(), ends, strict=True))

    def first_start(self, node: int) -> int | None:
        """Return where the first text of an edge starts in a node's text; None without any."""
        return int(self.start[self._rows[node][0]]) if node in self._rows else None

    def others_in(self, node: int, start: int, end: int) -> list[int]:
        """Return the other ends of the edges whose texts a span reads; distinct, in their order."""
        first, last = self._rows.get(node, (0, 0))
        after = bisect_right(self.end[first:last].tolist(), start)
        overlapping = [
            int(self.other[row]) for row in range(first + after, last) if self.start[row] < end
        ]
        return list(dict.fromkeys(overlapping))

    def write(self, folder: Path, ids: Sequence[str]) -> None:
        """Write `edge_texts.parquet`, with the id of the other end beside its row."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: pa.array(getattr(self, name)) for name in _NUMBERS}
        columns["other_id"] = pa.array([ids[row] for row in self.other.tolist()], pa.string())
        pq.write_table(pa.table(columns), folder / EDGE_TEXTS)

    @classmethod
    def read(cls, folder: Path) -> "EdgeSpans":
        """Read `edge_texts.parquet` of a client's folder."""
        # Whoever reads no text of an edge does not wait for pyarrow.
        import pyarrow as pa

        from dance_flwr.data.graphs.tables import parquet_table

        try:
            table = parquet_table(folder / EDGE_TEXTS, "edges").read(_NUMBERS)
            return cls(**{name: table[name].cast(pa.int64()).to_numpy() for name in _NUMBERS})
        except (DataError, pa.ArrowException) as error:
            raise DataError(
                f"{folder / EDGE_TEXTS}: expected where the texts of edges lie, found: {error}; "
                "copy the client's folder again, or prepare it again"
            ) from None


def edge_spans(folder: Path, card: ClientCard) -> EdgeSpans | None:
    """Return where texts of edges lie in the texts of a client; None if it has none."""
    # Why by the card (decision 27): a file that is added to a folder changes nothing.
    return EdgeSpans.read(folder) if EDGE_TEXTS in card.files else None


@dataclass(frozen=True)
class TextRecord:
    """The texts of record of n nodes.

    Attributes
    ----------
    node_texts : n texts of the nodes themselves
    edge_texts : n strings, the texts of each node's edges joined by SEPARATOR; "" without any
    spans : where these lie in `texts`; None if no node has one
    """

    node_texts: Sequence[str]
    edge_texts: Sequence[str]
    spans: EdgeSpans | None

    @classmethod
    def of(cls, node_texts: Sequence[str], edges: EdgeTexts | None) -> "TextRecord":
        """Compose the texts of record; those of a node's edges come in the order of the file.

        Each text of an edge stands at both of its ends: either node is described by the relation.
        """
        if not edges:
            return cls(node_texts, [""] * len(node_texts), None)
        m = len(edges)
        node = np.concatenate([edges.source, edges.target])
        other = np.concatenate([edges.target, edges.source])
        number = np.tile(np.arange(m), 2)
        order = np.lexsort((number, node))
        node, other, number = node[order], other[order], number[order]
        lengths = np.fromiter(map(len, edges.texts), np.int64, m)[number]
        step = lengths + len(SEPARATOR)
        start = np.cumsum(step) - step
        first = np.searchsorted(node, node)  # the first row of the same node
        before = [len(text) + len(SEPARATOR) if text else 0 for text in node_texts]
        start += np.array(before, np.int64)[node] - start[first]
        paragraphs: list[list[str]] = [[] for _ in node_texts]
        for row, text in zip(node.tolist(), number.tolist(), strict=True):
            paragraphs[row].append(edges.texts[text])
        edge_texts = [SEPARATOR.join(texts) for texts in paragraphs]
        spans = EdgeSpans(node, start, start + lengths, other, number)
        return cls(node_texts, edge_texts, spans)

    @classmethod
    def split(cls, texts: Sequence[str], spans: EdgeSpans | None) -> "TextRecord":
        """Return the record whose `texts` and `spans` are these: the inverse of `of`."""
        if spans is None:
            return cls(texts, [""] * len(texts), None)
        node_texts, edge_texts = list(texts), [""] * len(texts)
        for node in np.unique(spans.node).tolist():
            cut = spans.first_start(node) or 0
            node_texts[node] = texts[node][: max(cut - len(SEPARATOR), 0)]
            edge_texts[node] = texts[node][cut:]
        return cls(node_texts, edge_texts, spans)

    @property
    def texts(self) -> list[str]:
        """The texts of record."""
        return [
            of_node + (SEPARATOR if of_node and of_edges else "") + of_edges
            for of_node, of_edges in zip(self.node_texts, self.edge_texts, strict=True)
        ]

    @property
    def encoded(self) -> list[str]:
        """What a bank must hold for `gather`: the texts of nodes, then those of their edges."""
        return [*self.node_texts, *filter(None, self.edge_texts)]

    def gather(self, bank: "TextBank") -> BankSlice:
        """Return the chunks of the texts of record, with spans in them."""
        part = bank.gather(self.encoded)
        if self.spans is None:
            return part
        # Why apart (decision 27): no chunk holds both, a node's own chunks are those of the graph
        # without texts of edges, to the last bit, and each of the two has up to `max-chunks`.
        n = len(self.node_texts)
        with_edges = np.unique(self.spans.node)
        owner = np.repeat(np.concatenate([np.arange(n), with_edges]), np.diff(part.ptr))
        of_edges = np.arange(len(owner)) >= part.ptr[n]
        spans = part.spans.copy()
        start = {node: self.spans.first_start(node) for node in with_edges.tolist()}
        shift = np.array([start[node] for node in owner[of_edges].tolist()], np.int32)
        spans[of_edges] += shift[:, None]
        # An empty text has an empty chunk, as every node needs one: not where its edges say more.
        empty = ~of_edges & (part.spans[:, 0] == part.spans[:, 1]) & np.isin(owner, with_edges)
        rows = np.flatnonzero(~empty)
        rows = rows[np.argsort(owner[rows], kind="stable")]
        counts = np.bincount(owner[rows], minlength=n)
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return BankSlice(part.embeddings[rows], spans[rows], part.tokens[rows], ptr)
