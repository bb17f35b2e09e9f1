from dance_flwr.api import TextGraph as TextGraph
from dance_flwr.api import condense as condense
from dance_flwr.api import explain as explain
from dance_flwr.api import federate as federate
from dance_flwr.api import load as load
from dance_flwr.api import load_graph as load_graph
from dance_flwr.api import read_graph as read_graph

PROTOCOL: int
__version__: str
