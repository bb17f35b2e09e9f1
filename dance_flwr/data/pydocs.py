"""The `pydocs` graph: documentation of numpy, scipy, scikit-learn and networkx, read from the
installed packages.

Nodes are documented public functions and classes, edges the documentation's own cross-references,
labels the package areas (`scipy.stats`, `networkx.algorithms.centrality`, ...). Nothing is
downloaded. The graph depends only on the installed versions, which the provenance records.

A node's text is its docstring *without* the "See Also", "References" and "Examples" sections: most
edges are made from "See Also", so leaving it in would write the neighbours into the text. Qualified
names of the four packages are cut to their last component (`scipy.stats.norm` -> `norm`), because
they would spell out the label.
"""

import importlib
import inspect
import logging
import pkgutil
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dance_flwr.data.graph import NO_SPLIT, TextGraph, csr_from_pairs, summary
from dance_flwr.data.source import GraphSource
from dance_flwr.errors import DataError

PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "networkx": "networkx",
}  # distributions
MIN_TEXT = 40  # characters; shorter texts say too little to classify
MIN_QUOTED = 3  # characters of a back-quoted name that may be a reference
MIN_AREA = 40  # nodes; smaller areas of a package are merged into "<package>.other"

# numpy.core is a deprecated alias tree; the others are plug-ins, vendored code or checks, not
# documented interface
_SKIPPED_PARTS = {"tests", "conftest", "setup", "externals", "f2py", "distutils"}
_SKIPPED_MODULES = {
    "numpy.core",
    "numpy.typing",
    "sklearn.utils.estimator_checks",
    "sklearn.utils.fixes",
}
_DROPPED_SECTIONS = {"see also", "references", "examples", "example"}
_SHORTHANDS = {"np": "numpy", "nx": "networkx", "sp": "scipy"}
_LOG = logging.getLogger(__name__)

_UNDERLINE = re.compile(r"^\s*[-=~]{3,}\s*$")
_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj|attr|ref|mod|term|doc|data|exc|any):`([^`]*)`")
_LINK_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj):`([^`]*)`")
_QUOTED = re.compile(r"(?<![`:\w])(`{1,2})([A-Za-z_][\w.]*)(?:\(\))?\1(?!`)")
_QUALIFIED = re.compile(r"(?<![\w./])(?:numpy|scipy|sklearn|networkx|np|nx)(?:\.\w+)*\.(\w+)")
_URL = re.compile(
    r"`([^`<]*)<https?://[^>]*>`__?|https?://[^\s>)\]]+"
)  # addresses of pages name the area
# scipy prints a set of names into a docstring, in an order that changes with the hash seed
_PRINTED_SET = re.compile(r"(?<=Use of argument\(s\) ``\{)[^}]*(?=\})")
_SIGNATURE = re.compile(r"^\w+\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.MULTILINE)
_FIELD = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*:", re.MULTILINE)


@dataclass(frozen=True)
class _Entry:
    """One documented object: canonical name, every public path to it, and its cleaned docstring."""

    name: str
    paths: tuple[str, ...]
    doc: str


def build() -> TextGraph:
    """Return the documentation graph of the installed numpy, scipy, scikit-learn and networkx.

    Nodes are sorted by their canonical name: the shortest public path; among equally short ones the
    path that the object names as its own, then one that ends in the object's name, then the first
    in the alphabet. In networkx, which documents its functions there, it is the path in the
    defining module. An object re-exported under several paths is one node.

    Raises
    ------
    DataError : the interpreter has stripped the docstrings (`python -OO`)
    """
    if sys.flags.optimize > 1:  # compiled modules would keep theirs: a quarter of the graph
        raise DataError(
            "pydocs: expected docstrings, found that Python runs with -OO, which drops them; leave it out"
        )
    kept = [(entry, text) for entry in _collect() if len(text := _node_text(entry.doc)) >= MIN_TEXT]
    nodes = [entry for entry, _ in kept]
    areas = _merge_small([_area(entry.name) for entry in nodes])
    class_names, labels = np.unique(np.array(areas), return_inverse=True)
    pairs = np.array(sorted(_links(nodes)), dtype=np.int64).reshape(-1, 2)
    indptr, indices = csr_from_pairs(pairs[:, 0], pairs[:, 1], len(nodes))
    return TextGraph(
        name="pydocs",
        ids=np.array([entry.name for entry in nodes]),
        texts=[text for _, text in kept],
        labels=labels.astype(np.int64),
        class_names=tuple(str(name) for name in class_names),
        indptr=indptr,
        indices=indices,
        split=np.full(len(nodes), NO_SPLIT, np.uint8),
        provenance={dist: version(dist) for dist in PACKAGES.values()},
    )


def identity() -> str:
    """Return what the graph depends on: the packages' versions and this builder's own source."""
    versions = ",".join(f"{dist}={version(dist)}" for dist in PACKAGES.values())
    return f"{versions},{sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def _public_modules(package: str) -> Iterator[ModuleType]:
    """Yield the package and its importable public submodules, depth first."""
    pending = [package]
    while pending:
        name = pending.pop()
        try:
            module = importlib.import_module(name)
        except (
            Exception
        ) as error:  # an optional dependency is absent, or the module is for another platform
            _LOG.warning("pydocs: %s cannot be imported and is left out: %s", name, error)
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
    """Return every documented public object of the four packages once, sorted by canonical name."""
    objects: dict[int, tuple[Any, str, set[str]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # all imports come first: some modules (sklearn.experimental) add names to others when they
        # are imported
        modules = {
            package: sorted(_public_modules(package), key=lambda m: m.__name__)
            for package in PACKAGES
        }
        for package, found in modules.items():
            for module in found:
                for attribute, value in _public_members(module, package):
                    # the object is held too, as an id is unique only among living objects
                    _, _, paths = objects.setdefault(id(value), (value, package, set()))
                    paths.add(f"{module.__name__}.{attribute}")
    entries = {}
    for value, package, paths in objects.values():
        own = {path for path in paths if path.startswith(package + ".")}
        name = _canonical(value, own)
        doc = _PRINTED_SET.sub(
            lambda found: ", ".join(sorted(found[0].split(", "))), inspect.cleandoc(value.__doc__)
        )
        entries[name] = _Entry(name, tuple(sorted(paths)), doc)
    return [entries[name] for name in sorted(entries)]


def _public_members(module: ModuleType, package: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) for the documented callables that a module offers and that belong to its
    package.

    A module without `__all__` offers what is defined in it or below it, not the helpers that it
    imports.
    """
    owner = package if hasattr(module, "__all__") else module.__name__
    for name in sorted(
        name for name in set(getattr(module, "__all__", dir(module))) if not name.startswith("_")
    ):
        value = getattr(module, name, None)  # a lazy name that is gone gives None
        home = str(getattr(value, "__module__", None) or owner)  # ufuncs name no module
        if _is_documented(value) and f"{home}.".startswith(f"{owner}."):
            yield name, value


def _is_documented(value: Any) -> bool:
    """Say whether this is a class, a function, a ufunc or another callable with a docstring of its
    own.
    """
    doc = getattr(value, "__doc__", None)
    if not callable(value) or not isinstance(doc, str):
        return False
    kind = type(value)
    if kind.__name__ == "fortran":  # BLAS and LAPACK wrappers: a thousand signatures, no prose
        return False
    # an instance without its own text (a scalar, a partial) shows its class's docstring
    return inspect.isclass(value) or doc != kind.__doc__


def _canonical(value: Any, paths: set[str]) -> str:
    """Choose the node's name among its public paths; see `build` for the rule."""
    own_name = getattr(value, "__name__", None)
    home = f"{getattr(value, '__module__', None)}.{own_name}"
    if home in paths and home.startswith("networkx."):
        return home
    return min(
        paths,
        key=lambda path: (path.count("."), path != home, path.rpartition(".")[2] != own_name, path),
    )


def _area(name: str) -> str:
    """Return the package area of a canonical name; networkx's algorithms count by their own
    sub-area.
    """
    parts = name.split(".")[:-1]
    depth = 3 if parts[:2] == ["networkx", "algorithms"] else 2
    return ".".join(parts[:depth])


def _merge_small(areas: list[str]) -> list[str]:
    """Merge areas with fewer than `MIN_AREA` nodes into their package's `other`."""
    sizes = Counter(areas)
    return [
        area if sizes[area] >= MIN_AREA else f"{area.partition('.')[0]}.other" for area in areas
    ]


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yield (title in lower case, text) of each numpydoc section; the part before the first has the
    title ''.
    """
    lines = doc.splitlines()
    starts = [
        i for i in range(len(lines) - 1) if lines[i].strip() and _UNDERLINE.match(lines[i + 1])
    ]
    bounds = [*starts, len(lines)]
    yield "", "\n".join(lines[: bounds[0]])
    for start, end in zip(starts, bounds[1:], strict=True):
        yield lines[start].strip().rstrip(":").lower(), "\n".join(lines[start:end])


def _node_text(doc: str) -> str:
    """Return the docstring without the dropped sections, Sphinx markup and qualified names."""
    text = "\n".join(body for title, body in _sections(doc) if title not in _DROPPED_SECTIONS)
    text = _ROLE.sub(lambda match: match[1].partition("<")[0].strip().lstrip("~.!"), text)
    text = _URL.sub(lambda match: (match[1] or "").strip(), text)
    text = _QUALIFIED.sub(r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _mentions(entry: _Entry) -> set[str]:
    """Return the names that a docstring refers to: See Also entries, roles and back-quoted names."""
    found: set[str] = set()
    quoted: set[str] = set()
    own: set[str] = (
        set()
    )  # parameters and results: a quoted `axis` is no reference to a function of that name
    for title, body in _sections(entry.doc):
        found |= {_role_target(target) for target in _LINK_ROLE.findall(body)}
        if title == "see also":
            found |= _see_also(body)
            continue
        quoted |= {name for _, name in _QUOTED.findall(body)}
        own |= {name.strip(" *") for match in _FIELD.finditer(body) for name in match[1].split(",")}
        own |= {
            name for match in _SIGNATURE.finditer(body) for name in re.findall(r"\w+", match[1])
        }
    # one or two letters are variables of the text, whatever function may bear that name (`t`, `f`,
    # `eq`)
    found |= {name for name in quoted - own if len(name) >= MIN_QUOTED}
    return found - {""}


def _see_also(body: str) -> set[str]:
    """Return the names listed in a See Also section, a group a line: `a, b : text`, `a: text` or
    roles.
    """
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
    """Return the target of a role's content: `text <target>`, `~target` or `target()`."""
    shown, bracket, target = content.partition("<")
    return (target.rstrip("> ") if bracket else shown).strip().lstrip("~.!").removesuffix("()")


def _links(nodes: list[_Entry]) -> set[tuple[int, int]]:
    """Return (smaller, larger) index pairs for every mention that resolves to exactly one other
    node.
    """
    by_path = {path: i for i, entry in enumerate(nodes) for path in entry.paths}
    by_last: dict[tuple[str, str], set[int]] = {}
    for path, i in by_path.items():
        by_last.setdefault((path.partition(".")[0], path.rpartition(".")[2]), set()).add(i)
    links = set()
    for i, entry in enumerate(nodes):
        for mention in _mentions(entry):
            j = _resolve(mention, entry, by_path, by_last)
            if j is not None and j != i:
                links.add((min(i, j), max(i, j)))
    return links


def _resolve(
    mention: str, entry: _Entry, by_path: dict[str, int], by_last: dict[tuple[str, str], set[int]]
) -> int | None:
    """Return the node a mention names, or None.

    Tried in turn: the full path; the path below the entry's module and each parent module; the only
    node of the package with that ending; at last the class, where the mention is `Class.method`.
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


if __name__ == "__main__":
    print(summary(build()))


DATASET = GraphSource(build, identity)
