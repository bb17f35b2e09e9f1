"""Graphs that are made from installed packages, without a network."""

from collections.abc import Callable
from dataclasses import dataclass

from dance_flwr.data.graphs.graph import TextGraph


@dataclass(frozen=True)
class GraphSource:
    """A data set that is built on this machine, registered in `dance_flwr.datasets`.

    Attributes
    ----------
    build : returns the graph
    identity : returns a string that changes with the graph, without building the graph
    """

    build: Callable[[], TextGraph]
    identity: Callable[[], str]


@dataclass(frozen=True)
class BuiltIn:
    """What `data list` says of a graph that is made from installed packages, without a network.

    Attributes
    ----------
    text : content of a node's text
    licence : licence of the packages, under which the texts are
    origin : names of the packages
    """

    text: str
    licence: str = "BSD-3-Clause"
    origin: str = "installed numpy, scipy, scikit-learn, networkx"


BUILT_IN = {"pydocs": BuiltIn("docstring"), "pydocs-full": BuiltIn("docstring")}
