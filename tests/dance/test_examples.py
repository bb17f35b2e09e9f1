"""The examples in docstrings of dance/ give what they print."""

import doctest
from importlib import import_module

from support.project import PROJECT


def test_examples_print_what_they_say():
    attempted = 0
    for path in sorted((PROJECT / "dance_flwr" / "dance").glob("*.py")):
        module = import_module(f"dance_flwr.dance.{path.stem}")
        result = doctest.testmod(module)
        assert not result.failed, module.__name__
        attempted += result.attempted
    assert attempted >= 20
