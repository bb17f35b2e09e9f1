"""The examples in docstrings of `dance_flwr.evidence` give what they say."""

import doctest
import pkgutil
from importlib import import_module

import dance_flwr.evidence


def test_examples_give_what_they_say():
    names = pkgutil.walk_packages(dance_flwr.evidence.__path__, "dance_flwr.evidence.")
    results = [doctest.testmod(import_module(module.name)) for module in names]
    assert sum(result.attempted for result in results) >= 10
    assert not any(result.failed for result in results)
