"""The configuration of the run that a message belongs to."""

from functools import lru_cache

from flwr.app import Context

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, parse

Item = tuple[str, Value, type]  # True and 1 are equal, and only one of them is a valid switch


def run_config_of(context: Context) -> RunConfig:
    """Return `parse(context.run_config)`, which all messages of a run share.

    Raises
    ------
    ConfigError : as of `parse`
    """
    return _parsed(
        frozenset((key, value, type(value)) for key, value in context.run_config.items())
    )


@lru_cache(maxsize=8)  # simulated clients of several runs share a process
def _parsed(items: frozenset[Item]) -> RunConfig:
    return parse({key: value for key, value, _ in items})
