"""Settings of the suite: fewer steps where the number of them is not what is tested."""

import os
from dataclasses import replace
from functools import cache


def examples(deep: int) -> int:
    """How many examples a property is tried on: a third of `deep`, or all with `DEEP_TESTS=1`."""
    return deep if os.environ.get("DEEP_TESTS") else -(-deep // 3)


def quick_documentation():
    """The documentation of installed packages, is read once."""
    from dance_flwr.data.graphs import pydocs

    pydocs.build = cache(pydocs.build)
    pydocs.DATASET = replace(pydocs.DATASET, build=pydocs.build)
