"""The built-in graph `pydocs`: documentation of numpy, scipy, scikit-learn and networkx.

Nodes are documented public functions and classes, edges the documentation's cross-references,
labels the package areas (`scipy.stats`, ...). A node's text is the beginning of its docstring
without the sections "See Also", "References" and "Examples", which would list its neighbours, and
with qualified names cut to their last part, as they would reveal the label.
"""

import json
from pathlib import Path

import numpy as np

from dance_flwr.data.graphs.catalogue import GraphSource
from dance_flwr.data.graphs.graph import NO_SPLIT, TextGraph, csr_from_pairs
from dance_flwr.fingerprint import file_sha256

_FILE = Path(__file__).with_suffix(".json")


def build() -> TextGraph:
    """Return the graph; its provenance names the documented versions of the packages."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    ids, areas, texts = zip(*content["nodes"], strict=True)
    class_names, labels = np.unique(areas, return_inverse=True)
    edges = np.array(content["edges"], np.int64)
    indptr, indices = csr_from_pairs(edges[:, 0], edges[:, 1], len(ids))
    return TextGraph(
        name="pydocs",
        ids=np.array(ids),
        texts=list(texts),
        labels=labels.astype(np.int64),
        class_names=tuple(class_names.tolist()),
        indptr=indptr,
        indices=indices,
        split=np.full(len(ids), NO_SPLIT, np.uint8),
        provenance=content["versions"],
    )


DATASET = GraphSource(build, lambda: file_sha256(_FILE))
