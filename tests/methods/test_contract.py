"""The contract of every installed method that is no rival, so that a package can check its own."""

import pytest
from support.contract import Contract
from support.contract import observed as observed

from dance_flwr.config.plugins import METHODS, RIVALS
from dance_flwr.config.tree import flat_fields


def test_every_method_is_a_choice_of_the_configuration():
    assert tuple(flat_fields()["method"].metadata["choices"]) == tuple(METHODS)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in RIVALS], scope="class")
class TestContract(Contract):
    """Of the methods of this package, and those of packages that are no part of this repository."""
