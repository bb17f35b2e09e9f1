"""dance-flwr in Python: condense a graph, explain predictions, predict, federate.

    from dance_flwr.api import TextGraph, condense, federate, load
    graph = TextGraph.from_pyg(data, texts)               # torch_geometric.data.Data
    core = condense(graph, ratio_of_nodes=0.08)           # nodes, edges, texts of a small graph
    result = federate(graph, {"clients": 3, "rounds": 10})
    model = result.export("bundle")                       # or load("bundle")
    model.predict(graph).predicted
    model.explain(graph, graph.ids[:3])                   # shows the evidence in a notebook

Nothing here needs Flower, except `federate`, which runs the app's own server and clients in this
process. A mistake that a user can correct is a `UserError` of one line. Names are imported when
they are first used, so that `import dance_flwr.api` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dance_flwr.api.condensing import Core, condense, encode
    from dance_flwr.api.federating import federate
    from dance_flwr.api.node_evidence import Evidence, Neighbour, NodeEvidence, Span
    from dance_flwr.api.predicting import Predictions, Predictor, explain, load
    from dance_flwr.api.result import Result
    from dance_flwr.data.graphs.graph import TextGraph
    from dance_flwr.data.imports.importer import read_graph
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.errors import DataError, UserError

# Why by name (decision 23): torch takes seconds to import, this module none.
_PLACES = {
    "condensing": ("Core", "condense", "encode"),
    "node_evidence": ("Evidence", "Neighbour", "NodeEvidence", "Span"),
    "federating": ("federate",),
    "predicting": ("Predictions", "Predictor", "explain", "load"),
    "result": ("Result",),
}
_MODULES = {name: f"{__name__}.{place}" for place, names in _PLACES.items() for name in names}
_MODULES["TextGraph"] = "dance_flwr.data.graphs.graph"
_MODULES["load_graph"] = "dance_flwr.data.imports.loading"
_MODULES["read_graph"] = "dance_flwr.data.imports.importer"
_MODULES |= dict.fromkeys(("DataError", "UserError"), "dance_flwr.errors")

__all__ = [
    "Core",
    "DataError",
    "Evidence",
    "Neighbour",
    "NodeEvidence",
    "Predictions",
    "Predictor",
    "Result",
    "Span",
    "TextGraph",
    "UserError",
    "condense",
    "encode",
    "explain",
    "federate",
    "load",
    "load_graph",
    "read_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
