"""The `pydocs` graph: the linked part of `pydocs-full`, small enough for the first minutes.

Its texts are encoded within a minute on two processor cores. It keeps what a task on text and edges
is about: areas that mean something (no collection of leftovers), nodes with a reference to or from
another one, and the beginning of each text, which says what a function does.
"""

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs import pydocs
from dance_flwr.data.graphs.built_in import GraphSource
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.fingerprint import code_hash

MAX_TEXT = 500  # characters, about 130 tokens
MIN_LINKED = 60  # nodes; an area with fewer linked nodes is left out


def build() -> TextGraph:
    """Return the linked part of the documentation graph, with the beginning of each text.

    Kept are the largest areas A and nodes V such that every area of A has at least `MIN_LINKED`
    nodes in V, none is called "other", and every node in V has an edge to another node in V.
    """
    full = pydocs.build()
    part = full.subgraph(_linked(full), "pydocs")
    used, labels = np.unique(part.labels, return_inverse=True)
    return TextGraph(
        name=part.name,
        ids=part.ids,
        texts=[beginning(text) for text in part.texts],
        labels=labels.astype(np.int64),
        class_names=tuple(part.class_names[label] for label in used),
        indptr=part.indptr,
        indices=part.indices,
        split=part.split,
        provenance=part.provenance,
    )


def identity() -> str:
    """Return what the graph depends on: that of the full graph, and this source code."""
    return f"{pydocs.identity()},{code_hash(__file__)}"


def beginning(text: str, limit: int = MAX_TEXT) -> str:
    """Return the whole lines of a text up to `limit` characters, or that many of its first line."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit + 1)
    return text[: end if end > 0 else limit].rstrip()


def _linked(graph: TextGraph) -> NDArray[np.int64]:
    """Return the kept nodes, in ascending order; see `build` for the rule."""
    named = np.array([not name.endswith(".other") for name in graph.class_names])
    keep = named[graph.labels]
    adjacency = graph.adjacency().astype(np.int64)
    while True:
        linked = keep & (adjacency @ keep.astype(np.int64) > 0)
        sizes = np.bincount(graph.labels[linked], minlength=len(named))
        smaller = linked & (sizes >= MIN_LINKED)[graph.labels]
        if np.array_equal(smaller, keep):
            return np.flatnonzero(keep)
        keep = smaller


DATASET = GraphSource(build, identity)
