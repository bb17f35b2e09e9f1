"""What graphs made from documentation share: their texts, the names in them, and which nodes stay.

`pydocs` and `pydocs-full` have rules of their own, on which recorded results depend.
"""

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Any

import numpy as np

from dance_flwr.data.graphs import docstrings
from dance_flwr.data.graphs.graph import NO_SPLIT, UNLABELLED, TextGraph, csr_from_pairs
from dance_flwr.data.graphs.pydocs_small import beginning

MIN_CLASS = 40  # nodes, as in `pydocs-full`; the nodes of a rarer class are unlabelled

_SHORTHANDS = {"np": "numpy", "nx": "networkx", "sp": "scipy"}
_TITLE = re.compile(r"^([A-Z][\w ]*):?[ \t]*\n[-=~]{3,}[ \t]*$\n?", re.MULTILINE)
# Two letters and more: `e.g.` is no qualified name.
_QUALIFIED = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w+\.)+([A-Za-z_]\w+)")


def plain_text(doc: str) -> str:
    """Return the beginning of a docstring, without markup and the modules of qualified names.

    `torch.linalg.norm` becomes `norm`, because a module reveals the class.
    """
    return beginning(_QUALIFIED.sub(r"\1", docstrings.node_text(doc)))


def sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yield (title in lower case, body) of each section of a docstring in numpydoc's format."""
    parts = _TITLE.split(doc)
    yield from zip(map(str.lower, parts[1::2]), parts[2::2], strict=True)


def area(name: str) -> str:
    """Return the module of a qualified name, at most two levels deep: `scipy.stats`."""
    # The third level is too fine for classes: networkx has dozens of modules with a few functions.
    return ".".join(name.split(".")[:-1][:2])


def objects_of(names: Sequence[str]) -> list[Any]:
    """Return the imported objects with these qualified names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names are documented, too
        return [resolve_name(name) for name in names]


class Names:
    """Nodes by qualified name, such as `scipy.stats.norm`."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._nodes = {name: node for node, name in enumerate(ids)}
        self._by_last: dict[tuple[str, str], list[int]] = {}
        for name, node in self._nodes.items():
            key = (name.partition(".")[0], name.rpartition(".")[2])
            self._by_last.setdefault(key, []).append(node)

    def resolve(self, mention: str, user: str) -> int | None:
        """Return the node that a name in the documentation of `user` means, or None.

        Tries in turn the qualified name; the name in the module of `user` and in each parent
        module; the only node of the package with this ending; the class, if the mention is
        `Class.method`.
        """
        first, dot, rest = mention.strip("~.! ").partition(".")
        mention = _SHORTHANDS.get(first, first) + dot + rest
        parts = user.split(".")
        parents = (".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
        for name in (mention, *(f"{parent}.{mention}" for parent in parents)):
            if name in self._nodes:
                return self._nodes[name]
        same = self._by_last.get((parts[0], mention), [])
        if len(same) == 1:
            return same[0]
        holder = mention.rpartition(".")[0]
        return self.resolve(holder, user) if holder else None


@dataclass(frozen=True)
class Documents:
    """Documents that refer to each other.

    Attributes
    ----------
    ids, texts, classes : one of each per document
    edges : (source, target) numbers of different documents, in any order and direction
    sites : institution of each document; empty without institutions
    """

    ids: list[str]
    texts: list[str]
    classes: list[str]
    edges: Collection[tuple[int, int]]
    sites: list[str] = field(default_factory=list)

    def graph(self, name: str, distributions: Sequence[str]) -> TextGraph:
        """Return the graph of the documents that have an edge, in their order, without a split.

        The documents of a class with fewer than `MIN_CLASS` of them are unlabelled.
        """
        pairs = np.array(sorted(self.edges), dtype=np.int64).reshape(-1, 2)
        linked, rows = np.unique(pairs, return_inverse=True)
        source, target = rows.reshape(-1, 2).T
        class_names, numbers, sizes = np.unique(
            np.array(self.classes)[linked], return_inverse=True, return_counts=True
        )
        frequent = np.flatnonzero(sizes >= MIN_CLASS)
        # Why not left out: a rare class holds what many others refer to, such as base classes.
        labels = np.full(len(class_names), UNLABELLED, np.int64)
        labels[frequent] = np.arange(len(frequent))
        indptr, indices = csr_from_pairs(source, target, len(linked))
        return TextGraph(
            name=name,
            ids=np.array(self.ids)[linked],
            texts=[self.texts[node] for node in linked],
            labels=labels[numbers],
            class_names=tuple(class_names[frequent].tolist()),
            indptr=indptr,
            indices=indices,
            split=np.full(len(linked), NO_SPLIT, np.uint8),
            provenance={dist: version(dist) for dist in distributions},
            site=np.array(self.sites)[linked] if self.sites else None,
        )
