"""Settings of the suite that hold in every process of it."""

import os


def examples(deep: int) -> int:
    """How many examples a property is tried on: a third of `deep`, or all with `DEEP_TESTS=1`."""
    return deep if os.environ.get("DEEP_TESTS") else -(-deep // 3)


def quick_checks():
    """Condensed graphs are tried by networks of 20 steps, not 200: most of what condensing a tiny
    graph takes.
    """
    from dance_flwr.baselines.condensation import client

    client._STEPS = 20
