"""Runs of rivals take small settings, and few steps where their number is not what is tested."""

import pytest
import torch
from rival_support.settings import SMALL_RIVALS
from support.graphs import SMALL

SMALL |= SMALL_RIVALS


@pytest.fixture(scope="session", autouse=True)
def quick_rivals():
    """Condensed graphs are tried by networks of 20 steps, not 200."""
    from dance_flwr_rivals.condensation import client

    client._STEPS = 20


@pytest.fixture(autouse=True)
def the_same_draws():
    """Rivals draw from torch's global generator: tests are independent of each other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
