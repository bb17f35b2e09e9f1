"""What a built-in or plugged-in data set is: a function that builds its graph, and what it depends
on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dance_flwr.data.graph import TextGraph


@dataclass(frozen=True)
class GraphSource:
    """A graph that is built on this machine, registered in `dance_flwr.datasets`.

    Attributes
    ----------
    build : returns the graph
    identity : returns, cheaply, a text that changes when the graph would
    """

    build: Callable[[], TextGraph]
    identity: Callable[[], str]
