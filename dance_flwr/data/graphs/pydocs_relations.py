"""The `pydocs-relations` graph: a knowledge graph of scipy, scikit-learn and networkx.

Nodes are the documented functions and classes of these packages in `pydocs-full`, edges their
relations: a class is a subclass of another one, a function raises an exception, takes or returns
an object of a class, and refers to others under "See Also". The text of a relation is its name and
the sentence beside it in the documentation, if there is one. The text of a node is the beginning of
its docstring, and its class its module (`scipy.stats`).
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs import documented, pydocs, pydocs_small
from dance_flwr.data.graphs.built_in import GraphSource
from dance_flwr.data.graphs.documented import (
    Documents,
    Names,
    area,
    objects_of,
    plain_text,
    sections,
)
from dance_flwr.data.graphs.edges import EdgeTexts
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.fingerprint import code_hash

PACKAGES = ("scipy", "sklearn", "networkx")
# Section of a docstring -> relation to what its entries name.
SECTIONS = {
    "see also": "see also",
    "raises": "raises",
    "warns": "warns with",
    "parameters": "takes",
    "returns": "returns",
    "attributes": "has",
}

_NAME = re.compile(r"[A-Za-z_][\w.]{2,}")
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
_ROLE = re.compile(r":\w+:`[~.]?([^`]*)`")

# (source [m] int64, target [m] int64, m texts): node numbers and text of each relation.
Relations = tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]


def build() -> TextGraph:
    """Return the knowledge graph of the installed scipy, scikit-learn and networkx, with relations
    as texts of edges.
    """
    graph, relations = build_with_relations()
    return replace(graph, edge_texts=EdgeTexts(*relations))


def build_with_relations() -> tuple[TextGraph, Relations]:
    """Return the graph and its relations, sorted; two nodes may have several."""
    full = pydocs.build()
    nodes = [i for i, name in enumerate(full.ids.tolist()) if name.split(".")[0] in PACKAGES]
    ids = full.ids[nodes].tolist()
    triples = sorted(set(_relations(ids, objects_of(ids))))
    graph = Documents(
        ids=ids,
        texts=[plain_text(full.texts[node]) for node in nodes],
        classes=[area(name) for name in ids],
        edges={(source, target) for source, target, _ in triples},
    ).graph("pydocs-relations", tuple(pydocs.PACKAGES[package] for package in PACKAGES))
    row = np.searchsorted(graph.ids, full.ids[nodes])  # both ascend
    source, target = row[np.array([ends for *ends, _ in triples])].T
    return graph, (source, target, tuple(text for _, _, text in triples))


def identity() -> str:
    """Return what the graph depends on: that of `pydocs`, and this source code."""
    return f"{pydocs_small.identity()},{code_hash(__file__, str(documented.__file__))}"


def _relations(ids: list[str], objects: list[Any]) -> Iterator[tuple[int, int, str]]:
    """Yield (source, target, text) of the relations between different nodes."""
    names, classes = Names(ids), {id(value): node for node, value in enumerate(objects)}
    for node, value in enumerate(objects):
        for base in _bases(value, classes):
            yield node, base, "subclass of"
        for title, body in sections(inspect.cleandoc(value.__doc__)):
            if title not in SECTIONS:
                continue
            for head, below in _items(body):
                mentions, text = _parts(title, head, below)
                text = f"{SECTIONS[title]}: {text}" if text else SECTIONS[title]
                for mention in dict.fromkeys(mentions):
                    target = names.resolve(mention, ids[node])
                    # A type in words ("real", "scale") is not the function of this name.
                    if target not in (None, node) and (
                        title == "see also" or inspect.isclass(objects[target])
                    ):
                        yield node, target, text


def _bases(value: Any, classes: dict[int, int]) -> Iterator[int]:
    """Yield the nodes of a class's bases, and of the bases of those that are no node."""
    for base in getattr(value, "__bases__", ()):
        if id(base) in classes:
            yield classes[id(base)]
        else:
            yield from _bases(base, classes)


def _items(body: str) -> Iterator[tuple[str, str]]:
    """Yield (first line, indented lines below it) of each entry of a section."""
    # What stands before the first line without indentation belongs to no entry.
    for entry in re.split(r"^(?=\S)", body, flags=re.MULTILINE)[1:]:
        head, _, below = entry.partition("\n")
        yield _ROLE.sub(r"\1", head.strip()), below


def _parts(title: str, head: str, below: str) -> tuple[list[str], str]:
    """Return (the names that an entry refers to, its first sentence on them; "" if none)."""
    name, colon, rest = head.partition(":")
    if title == "see also":  # `name, name : text`; a sentence names nothing
        mentions, text = [part.strip(" `()") for part in name.split(",")], f"{rest} {below}"
    elif title in ("raises", "warns"):
        mentions, text = _NAME.findall(name), f"{rest} {below}"
    elif colon:  # `name : type`
        mentions, text = _NAME.findall(rest), f"{name.strip()}, {below}"
    else:  # `type`, of a result
        mentions, text = _NAME.findall(head), below
    text = _SENTENCE_END.split(" ".join(plain_text(text).split()))[0].rstrip(" ,")
    return mentions, text if re.search(r"\w", text) else ""


DATASET = GraphSource(build, identity)
