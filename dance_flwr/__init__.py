"""DANCE: federated learning on text-attributed graphs, as a Flower app."""

__version__ = "0.1.0"

# Why (decision 26): two releases work together as long as what they exchange is the same, whatever
# else differs. Raise it with the schema in tests/golden/schema.json, whose test says when.
PROTOCOL = 1
"""Number of the messages and of the state of runs.

It decides whether a node may join, whether a run may be resumed, and what `deploy check` expects.
"""
