"""The `pydocs-sites` graph: six libraries as institutions that share topics.

Nodes are public functions and classes, texts the beginning of their docstrings, edges the
references between them. A node's class is its topic, which `TOPICS` gives by module, and its site
the library that it belongs to, so that `partition = "by-column"` makes clients that no rule
invented: some topics are in most libraries, and others almost in one alone.
"""

import importlib
import inspect
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from types import ModuleType
from typing import Any

from dance_flwr.data.graphs import docstrings, documented, pydocs_small
from dance_flwr.data.graphs.built_in import GraphSource
from dance_flwr.data.graphs.documented import Documents, Names, plain_text
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.pydocs import MIN_TEXT
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import code_hash

# Topics that two libraries or more document, each in modules of its own.
TOPICS = {
    "clustering": (
        "networkx.algorithms.community",
        "scipy.cluster.hierarchy",
        "scipy.cluster.vq",
        "sklearn.cluster",
        "torch_geometric.nn.pool",
    ),
    "data sets": (
        "networkx.generators",
        "scipy.datasets",
        "sklearn.datasets",
        "torch.utils.data",
        "torch_geometric.datasets",
    ),
    "Fourier transforms": ("numpy.fft", "scipy.fft", "torch.fft"),
    "graph algorithms": ("networkx.algorithms", "scipy.sparse.csgraph", "torch_geometric.utils"),
    "linear algebra": (
        "networkx.linalg",
        "numpy.linalg",
        "scipy.linalg",
        "scipy.sparse.linalg",
        "torch.linalg",
    ),
    "metrics": ("scipy.spatial.distance", "sklearn.metrics", "torch_geometric.metrics"),
    "neural networks": (
        "sklearn.neural_network",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.init",
        "torch_geometric.nn.aggr",
        "torch_geometric.nn.conv",
        "torch_geometric.nn.models",
        "torch_geometric.nn.norm",
    ),
    "optimization": ("scipy.optimize", "torch.optim", "torch.optim.lr_scheduler"),
    "probability": ("numpy.random", "scipy.stats", "torch.distributions"),
    "signals": ("scipy.ndimage", "scipy.signal", "torch.signal.windows"),
    "special functions": ("scipy.special", "torch.special"),
    "transformations": (
        "sklearn.decomposition",
        "sklearn.feature_extraction",
        "sklearn.manifold",
        "sklearn.preprocessing",
        "torch_geometric.transforms",
    ),
}
DISTRIBUTIONS = ("networkx", "numpy", "scikit-learn", "scipy", "torch", "torch-geometric")
_LOG = logging.getLogger(__name__)


def build() -> TextGraph:
    """Return the graph of the installed libraries in `DISTRIBUTIONS`.

    An object that several modules export counts in the innermost of them, the first by name among
    equals. A module of `TOPICS` that another release lacks is omitted.
    """
    if sys.flags.optimize > 1:
        raise DataError(
            "pydocs-sites: expected docstrings, found Python running with -OO, which strips them; "
            "run it without -OO"
        )
    topics = {module: topic for topic, modules in TOPICS.items() for module in modules}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        documents = _documents(sorted(topics, key=lambda module: (-module.count("."), module)))
    ids = sorted(documents)
    names = Names(ids)
    edges = {
        (node, target)
        for node, name in enumerate(ids)
        for mention in docstrings.mentions(documents[name])
        if (target := names.resolve(mention, name)) is not None and target != node
    }
    return Documents(
        ids=ids,
        texts=[plain_text(documents[name]) for name in ids],
        classes=[topics[name.rpartition(".")[0]] for name in ids],
        edges=edges,
        sites=[name.partition(".")[0] for name in ids],
    ).graph("pydocs-sites", DISTRIBUTIONS)


def identity() -> str:
    """Return what the graph depends on: the libraries' versions and the builder's source code."""
    versions = ",".join(f"{dist}={version(dist)}" for dist in DISTRIBUTIONS)
    sources = (__file__, *(str(m.__file__) for m in (documented, docstrings, pydocs_small)))
    return f"{versions},{code_hash(*sources)}"


def _documents(modules: list[str]) -> dict[str, str]:
    """Return qualified name -> docstring of each public object, in the first module that has it."""
    objects: dict[int, tuple[str, Any]] = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            _LOG.warning("pydocs-sites: %s cannot be imported and is omitted: %s", name, error)
            continue
        for attribute, value in _public(module):
            # Keep a reference: an id is unique only among living objects.
            objects.setdefault(id(value), (f"{name}.{attribute}", value))
    docs = {name: inspect.cleandoc(value.__doc__) for name, value in objects.values()}
    return {name: doc for name, doc in docs.items() if len(plain_text(doc)) >= MIN_TEXT}


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of the library's own documented classes and functions in a module."""
    library = module.__name__.partition(".")[0]
    for name in sorted(getattr(module, "__all__", dir(module))):
        value = getattr(module, name, None)
        doc, home = getattr(value, "__doc__", None), getattr(value, "__module__", None) or library
        if name.startswith("_") or not callable(value) or not isinstance(doc, str):
            continue
        # An instance without its own docstring shows that of its class.
        if home.partition(".")[0] == library and (
            inspect.isclass(value) or doc != type(value).__doc__
        ):
            yield name, value


DATASET = GraphSource(build, identity)
