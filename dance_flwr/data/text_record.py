"""Texts of record: a node's own text, then the texts of its edges as further paragraphs.

A client stores, chunks and cites these texts; where each paragraph of an edge lies in them is in
`edge_texts.parquet` of the client's folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dance_flwr.data.edge_spans import EdgeSpans
from dance_flwr.data.graphs.edges import EdgeTexts
from dance_flwr.data.text.bank_slice import BankSlice

if TYPE_CHECKING:  # who reads texts needs no encoder
    from dance_flwr.data.text.bank import TextBank

SEPARATOR = "\n\n"  # before each paragraph of an edge: the chunker ends a sentence at a blank line


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
