"""DANCE: federated learning on text-attributed graphs, as a Flower app."""

__version__ = "0.1.0"
