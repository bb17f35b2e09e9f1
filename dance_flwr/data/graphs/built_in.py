"""Graphs that are built on this machine, without a network."""

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
