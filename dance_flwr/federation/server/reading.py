"""How all clients of a run read texts and edges, by the sum of their votes."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from dance_flwr.client_data.reading_probe import chosen_keys, elect, is_settled, readings
from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.wire import keys

LOG = logging.getLogger("flwr")

Reading = dict[str, Any]  # the chosen keys, and "votes"


def vote_size(config: RunConfig) -> int:
    """Return the number of a client's votes; 0 if there is no vote."""
    # Why (decision 18): votes are exact counts of validation nodes, which no privacy budget covers.
    if config.privacy.dp != "none" or is_settled(config):
        return 0
    return 2 * len(readings(config))


def summed_votes(votes: Iterable[Sequence[int]]) -> list[int]:
    """Return the element-wise sum of the votes of clients."""
    return [sum(each) for each in zip(*votes, strict=True)]


def settled_reading(known: Reading, config: RunConfig, votes: Sequence[int]) -> dict[str, Any]:
    """Return the keys of the reading for every later message; `known` is filled once in a run."""
    if not known:
        known |= chosen_reading(config, votes)
    return {key: known[key] for key in (keys.TEXT_POOLING, keys.EDGE_GATES) if key in known}


def chosen_reading(config: RunConfig, votes: Sequence[int]) -> Reading:
    """Return the keys of the elected reading; empty if the configuration leaves none open."""
    if is_settled(config):
        return {}
    chosen = chosen_keys(elect(reading_of(config), votes))
    LOG.info("reading of all clients: %s", ", ".join(f"{k} = {v}" for k, v in chosen.items()))
    return {**chosen, "votes": list(votes)}
