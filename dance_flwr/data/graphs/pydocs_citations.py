"""The `pydocs-citations` graph: documentation of scientific packages, and the works that it cites.

Nodes are the documented functions and classes of `pydocs-full` that have a section "References",
and the papers, books and web pages in it. A function has an edge to each work that it cites and to
each function that it refers to. The text of a function is the beginning of its docstring without
these references, that of a work its bibliographic entry. The class of a function is its module
(`scipy.stats`), that of a work the module that cites it most.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from dance_flwr.data.graphs import documented, pydocs, pydocs_small
from dance_flwr.data.graphs.built_in import GraphSource
from dance_flwr.data.graphs.documented import Documents, area, objects_of, plain_text, sections
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.fingerprint import code_hash

MIN_LETTERS = 15  # of an entry without its links; shorter ones ("Wikipedia") name no work

_MARK = re.compile(r"^[^\S\n]*+(?:\.\. )?\[[^\]\n]{1,20}\]_?:?\s", re.MULTILINE)  # `.. [1] `
_LINK = re.compile(r"https?://\S+|:?doi:?\s*`?\S+|:arXiv:`[^`]*`", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:chapter|section|pages?|pp?|vol|no|ed)\b")
_WORD = re.compile(r"[^\W\d_]+")


def build() -> TextGraph:
    """Return the citation graph of the installed numpy, scipy, scikit-learn and networkx.

    Entries are the same work if they have the same words, apart from links, numbers, and words
    such as "chapter" and "pp"; its text is the longest of them.
    """
    full = pydocs.build()
    names = full.ids.tolist()
    entries = [
        (node, work, text)
        for node, value in enumerate(objects_of(names))
        for work, text in _entries(inspect.cleandoc(value.__doc__))
    ]
    citing = sorted({node for node, _, _ in entries})
    works = sorted({work for _, work, _ in entries})
    place = {node: i for i, node in enumerate(citing)}
    number = {work: len(citing) + i for i, work in enumerate(works)}
    among = full.subgraph(np.array(citing), full.name).adjacency().tocoo()
    cites = {(place[node], number[work]) for node, work, _ in entries}
    areas = [area(names[node]) for node in citing]
    users: dict[int, Counter[str]] = {}
    for node, work in sorted(cites):
        users.setdefault(work, Counter())[areas[node]] += 1
    longest: dict[str, str] = {}
    for _, entry, text in entries:
        longest[entry] = max(longest.get(entry, ""), text, key=lambda text: (len(text), text))
    return Documents(
        ids=[*(names[node] for node in citing), *(f"work: {work}" for work in works)],
        texts=[*(plain_text(full.texts[node]) for node in citing), *(longest[w] for w in works)],
        classes=[*areas, *(_most_frequent(users[number[work]]) for work in works)],
        edges=cites | set(zip(among.row.tolist(), among.col.tolist(), strict=True)),
    ).graph("pydocs-citations", tuple(pydocs.PACKAGES.values()))


def identity() -> str:
    """Return what the graph depends on: that of `pydocs`, and this source code."""
    return f"{pydocs_small.identity()},{code_hash(__file__, str(documented.__file__))}"


def _entries(doc: str) -> Iterator[tuple[str, str]]:
    """Yield (words that identify the work, text) of each entry in a docstring's references."""
    for title, body in sections(doc):
        if title not in ("references", "reference"):
            continue
        marked = _MARK.split(body)
        for entry in marked[1:] or body.split("\n\n"):
            text = " ".join(plain_text(_LINK.sub("", entry)).split())
            work = " ".join(_WORD.findall(_PLACE.sub(" ", text.lower())))
            if len(work) >= MIN_LETTERS:
                yield work, text


def _most_frequent(counts: Counter[str]) -> str:
    """Return the key with the highest count, the first by name among equals."""
    return min(counts, key=lambda name: (-counts[name], name))


DATASET = GraphSource(build, identity)
