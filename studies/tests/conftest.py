"""Studies of tests are estimated from rows that are read once."""

from functools import cache

import pytest
from rival_support.settings import SMALL_RIVALS
from support.graphs import SMALL

SMALL |= SMALL_RIVALS


@pytest.fixture(scope="session", autouse=True)
def quick_estimates():
    """The committed rows, from which a grid is estimated, are read once: that takes a second."""
    from dance_flwr_studies.engine import estimate

    read, committed = estimate._of_rows, estimate.COMMITTED
    once = cache(lambda: read(committed))
    estimate._of_rows = lambda file: once() if file == committed else read(file)
