"""Settings of the suite: fewer steps where the number of them is not what is tested."""

import os


def examples(deep: int) -> int:
    """How many examples a property is tried on: a third of `deep`, or all with `DEEP_TESTS=1`."""
    return deep if os.environ.get("DEEP_TESTS") else -(-deep // 3)
