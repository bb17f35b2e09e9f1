"""The `pydocs` graph: documentation of the installed numpy, scipy, scikit-learn and networkx.

Nodes are documented public functions and classes, edges the documentation's cross-references,
labels the package areas (`scipy.stats`, ...). Only large areas and nodes with an edge are kept, and
the beginning of each text, so that the texts are encoded within a minute on two processor cores.
Nothing is downloaded. The graph depends only on the installed versions, which the provenance
records.

A node's text is its docstring *without* the "See Also", "References" and "Examples" sections: most
edges come from "See Also", so that section would list a node's neighbours in its text. Qualified
names of the four packages are cut to their last component (`scipy.stats.norm` -> `norm`), because
they would reveal the label.
"""

import importlib
import inspect
import logging
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dance_flwr.data.graphs.catalogue import GraphSource
from dance_flwr.data.graphs.graph import NO_SPLIT, TextGraph, csr_from_pairs
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import code_hash

MIN_QUOTED = 3  # shortest back-quoted name, in characters, that counts as a reference
_DROPPED_SECTIONS = {"see also", "references", "examples", "example"}

_UNDERLINE = re.compile(r"^\s*[-=~]{3,}\s*$")
_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj|attr|ref|mod|term|doc|data|exc|any):`([^`]*)`")
_LINK_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj):`([^`]*)`")
_QUOTED = re.compile(r"(?<![`:\w])(`{1,2})([A-Za-z_][\w.]*)(?:\(\))?\1(?!`)")
_QUALIFIED = re.compile(r"(?<![\w./])(?:numpy|scipy|sklearn|networkx|np|nx)(?:\.\w+)*\.(\w+)")
# Web addresses name the package area, which is the label.
_URL = re.compile(r"`([^`<]*)<https?://[^>]*>`__?|https?://[^\s>)\]]+")
_SIGNATURE = re.compile(r"^\w+\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.MULTILINE)
_FIELD = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*:", re.MULTILINE)


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    lines = doc.splitlines()
    starts = [
        i for i in range(len(lines) - 1) if lines[i].strip() and _UNDERLINE.match(lines[i + 1])
    ]
    bounds = [*starts, len(lines)]
    yield "", "\n".join(lines[: bounds[0]])
    for start, end in zip(starts, bounds[1:], strict=True):
        yield lines[start].strip().rstrip(":").lower(), "\n".join(lines[start:end])


def node_text(doc: str) -> str:
    """Return the docstring without the dropped sections, Sphinx markup and qualified names."""
    text = "\n".join(body for title, body in _sections(doc) if title not in _DROPPED_SECTIONS)
    text = _ROLE.sub(lambda match: match[1].partition("<")[0].strip().lstrip("~.!"), text)
    text = _URL.sub(lambda match: (match[1] or "").strip(), text)
    text = _QUALIFIED.sub(r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def mentions(doc: str) -> set[str]:
    """Return the names that a docstring refers to by See Also, roles and back-quotes."""
    names: set[str] = set()
    quoted: set[str] = set()
    # Parameters and results: a quoted `axis` does not refer to a function of that name.
    variables: set[str] = set()
    for title, body in _sections(doc):
        names |= {_role_target(target) for target in _LINK_ROLE.findall(body)}
        if title == "see also":
            names |= _see_also(body)
            continue
        quoted |= {name for _, name in _QUOTED.findall(body)}
        variables |= {
            name.strip(" *") for match in _FIELD.finditer(body) for name in match[1].split(",")
        }
        variables |= {
            name for match in _SIGNATURE.finditer(body) for name in re.findall(r"\w+", match[1])
        }
    # Names of one or two letters are variables, even if a function has that name (`t`, `f`, `eq`).
    names |= {name for name in quoted - variables if len(name) >= MIN_QUOTED}
    return names - {""}


def _see_also(body: str) -> set[str]:
    """Return the names in a See Also section: lines of `a, b : text`, `a: text` or roles."""
    names: set[str] = set()
    for line in body.splitlines()[2:]:
        if line.startswith((" ", "..")):  # an indented line describes the entry above it
            continue
        head = re.split(
            r"\s*:(?:\s|$)", _ROLE.sub(lambda match: _role_target(match[1]), line), maxsplit=1
        )[0]
        parts = (part.strip(" `:").removesuffix("()") for part in head.split(","))
        names |= {part for part in parts if part.replace(".", "").isidentifier()}
    return names


def _role_target(content: str) -> str:
    shown, bracket, target = content.partition("<")
    return (target.rstrip("> ") if bracket else shown).strip().lstrip("~.!").removesuffix("()")


PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "networkx": "networkx",
}  # distributions
MIN_TEXT = 40  # characters; shorter texts are too short to classify
MAX_TEXT = 500  # characters, about 130 tokens
MIN_LINKED = 60  # nodes; an area with fewer linked nodes is left out

# numpy.core is a deprecated alias tree; the others are plug-ins, vendored code or checks, which are
# not part of the documented interface.
_SKIPPED_PARTS = {"tests", "conftest", "setup", "externals", "f2py", "distutils"}
_SKIPPED_MODULES = {
    "numpy.core",
    "numpy.typing",
    "sklearn.utils.estimator_checks",
    "sklearn.utils.fixes",
}
_SHORTHANDS = {"np": "numpy", "nx": "networkx", "sp": "scipy"}
_LOG = logging.getLogger(__name__)

# scipy prints a set of names into a docstring, in an order that changes with the hash seed.
_PRINTED_SET = re.compile(r"(?<=Use of argument\(s\) ``\{)[^}]*(?=\})")


@dataclass(frozen=True)
class _Entry:
    """A documented object: canonical name, every public path to it, and its cleaned docstring."""

    name: str
    paths: tuple[str, ...]
    doc: str


def build() -> TextGraph:
    """Return the documentation graph of the installed numpy, scipy, scikit-learn and networkx.

    Kept are the largest areas A and nodes V such that every area of A has at least `MIN_LINKED`
    nodes in V, and every node in V has an edge to another node in V.

    Nodes are sorted by their canonical name. This is the shortest public path; among equally short
    ones, the path that the object states itself, then one that ends in the object's name, then the
    first in alphabetical order. In networkx it is the path in the defining module, under which its
    functions are documented. An object exported under several paths is one node.

    Raises
    ------
    DataError : the interpreter has stripped the docstrings (`python -OO`)
    """
    if sys.flags.optimize > 1:  # only compiled modules keep theirs: a quarter of the graph
        raise DataError(
            "pydocs: expected docstrings, found Python running with -OO, which strips them; "
            "run it without -OO"
        )
    described = [(entry, node_text(entry.doc)) for entry in _collect()]
    described = [(entry, text) for entry, text in described if len(text) >= MIN_TEXT]
    entries = [entry for entry, _ in described]
    areas = np.unique([_area(entry.name) for entry in entries], return_inverse=True)[1]
    pairs = np.array(sorted(_links(entries)), dtype=np.int64).reshape(-1, 2)
    csr = csr_from_pairs(pairs[:, 0], pairs[:, 1], len(entries))
    nodes = _linked(areas, csr)
    place = np.full(len(entries), -1)
    place[nodes] = np.arange(len(nodes))
    ends = place[pairs[(place[pairs] >= 0).all(axis=1)]]
    indptr, indices = csr_from_pairs(ends[:, 0], ends[:, 1], len(nodes))
    class_names, labels = np.unique([_area(entries[i].name) for i in nodes], return_inverse=True)
    return TextGraph(
        name="pydocs",
        ids=np.array([entries[i].name for i in nodes]),
        texts=[beginning(described[i][1]) for i in nodes],
        labels=labels.astype(np.int64),
        class_names=tuple(class_names.tolist()),
        indptr=indptr,
        indices=indices,
        split=np.full(len(nodes), NO_SPLIT, np.uint8),
        provenance={dist: version(dist) for dist in PACKAGES.values()},
    )


def identity() -> str:
    """Return what the graph depends on: the packages' versions and the builder's source code."""
    versions = ",".join(f"{dist}={version(dist)}" for dist in PACKAGES.values())
    # Why (decision 26): a reworded comment builds the same graph, and renames no partition of it.
    return f"{versions},{code_hash(__file__)}"


def _public_modules(package: str) -> Iterator[ModuleType]:
    pending = [package]
    while pending:
        name = pending.pop()
        try:
            module = importlib.import_module(name)
        except Exception as error:  # an optional dependency is missing, or another platform
            _LOG.warning("pydocs: %s cannot be imported and is omitted: %s", name, error)
            continue
        yield module
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            full = f"{name}.{info.name}"
            if (
                not info.name.startswith("_")
                and info.name not in _SKIPPED_PARTS
                and full not in _SKIPPED_MODULES
            ):
                pending.append(full)


def _collect() -> list[_Entry]:
    objects: dict[int, tuple[Any, str, set[str]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Import everything first: some modules (sklearn.experimental) add names to others on
        # import.
        modules = {
            package: sorted(_public_modules(package), key=lambda m: m.__name__)
            for package in PACKAGES
        }
        for package, submodules in modules.items():
            for module in submodules:
                for attribute, value in _public_members(module, package):
                    # Keep a reference: an id is unique only among living objects.
                    _, _, paths = objects.setdefault(id(value), (value, package, set()))
                    paths.add(f"{module.__name__}.{attribute}")
    entries = {}
    for value, package, paths in objects.values():
        name = _canonical(value, {path for path in paths if path.startswith(package + ".")})
        doc = _PRINTED_SET.sub(
            lambda match: ", ".join(sorted(match[0].split(", "))), inspect.cleandoc(value.__doc__)
        )
        entries[name] = _Entry(name, tuple(sorted(paths)), doc)
    return [entries[name] for name in sorted(entries)]


def _public_members(module: ModuleType, package: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of the documented public callables of a module and its package.

    The public names of a module without `__all__` are those defined in it or below it, not those
    that it imports.
    """
    owner = package if hasattr(module, "__all__") else module.__name__
    for name in sorted(
        name for name in set(getattr(module, "__all__", dir(module))) if not name.startswith("_")
    ):
        value = getattr(module, name, None)  # None for a lazy name that is gone
        home = str(getattr(value, "__module__", None) or owner)  # ufuncs have no module
        if _is_documented(value) and f"{home}.".startswith(f"{owner}."):
            yield name, value


def _is_documented(value: Any) -> bool:
    doc = getattr(value, "__doc__", None)
    if not callable(value) or not isinstance(doc, str):
        return False
    kind = type(value)
    if kind.__name__ == "fortran":  # BLAS and LAPACK wrappers: a thousand signatures, no prose
        return False
    # An instance without its own docstring (a scalar, a partial) shows that of its class.
    return inspect.isclass(value) or doc != kind.__doc__


def _canonical(value: Any, paths: set[str]) -> str:
    """Return the node's name among its public paths; see `build` for the rule."""
    stated_name = getattr(value, "__name__", None)
    home = f"{getattr(value, '__module__', None)}.{stated_name}"
    if home in paths and home.startswith("networkx."):
        return home
    return min(
        paths,
        key=lambda path: (
            path.count("."),
            path != home,
            path.rpartition(".")[2] != stated_name,
            path,
        ),
    )


def _area(name: str) -> str:
    parts = name.split(".")[:-1]
    depth = 3 if parts[:2] == ["networkx", "algorithms"] else 2
    return ".".join(parts[:depth])


def beginning(text: str, limit: int = MAX_TEXT) -> str:
    """Return the whole lines of a text up to `limit` characters, or that many of its first line."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit + 1)
    return text[: end if end > 0 else limit].rstrip()


def _linked(
    areas: NDArray[np.int64], csr: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the kept nodes, in ascending order; see `build` for the rule."""
    n = len(areas)
    adjacency = sp.csr_matrix((np.ones(len(csr[1]), np.int64), csr[1], csr[0]), shape=(n, n))
    keep = np.ones(n, np.bool_)
    while True:
        linked = keep & (adjacency @ keep.astype(np.int64) > 0)
        sizes = np.bincount(areas[linked], minlength=areas.max() + 1)
        smaller = linked & (sizes >= MIN_LINKED)[areas]
        if np.array_equal(smaller, keep):
            return np.flatnonzero(keep)
        keep = smaller


def _links(nodes: list[_Entry]) -> set[tuple[int, int]]:
    """Return (smaller, larger) index pairs of the mentions that resolve to exactly one node."""
    by_path = {path: i for i, entry in enumerate(nodes) for path in entry.paths}
    by_last: dict[tuple[str, str], set[int]] = {}
    for path, i in by_path.items():
        by_last.setdefault((path.partition(".")[0], path.rpartition(".")[2]), set()).add(i)
    links = set()
    for i, entry in enumerate(nodes):
        for mention in mentions(entry.doc):
            j = _resolve(mention, entry, by_path, by_last)
            if j is not None and j != i:
                links.add((min(i, j), max(i, j)))
    return links


def _resolve(
    mention: str, entry: _Entry, by_path: dict[str, int], by_last: dict[tuple[str, str], set[int]]
) -> int | None:
    """Return the node that a mention names, or None.

    Tries in turn the full path; the path below the entry's module and each parent module; the only
    node of the package with that ending; the class, if the mention is `Class.method`.
    """
    first, dot, rest = mention.strip(".").partition(".")
    mention = _SHORTHANDS.get(first, first) + dot + rest
    parts = entry.name.split(".")
    parents = (".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
    for path in (mention, *(f"{parent}.{mention}" for parent in parents)):
        if path in by_path:
            return by_path[path]
    same = by_last.get((parts[0], mention), set())
    if len(same) == 1:
        return next(iter(same))
    holder = mention.rpartition(".")[0]
    if holder and holder not in PACKAGES:
        return _resolve(holder, entry, by_path, by_last)
    return None


DATASET = GraphSource(build, identity)
