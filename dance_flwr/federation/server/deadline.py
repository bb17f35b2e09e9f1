"""How long a server waits for the replies to a batch of messages."""

import time
from math import inf

from dance_flwr.config.sections import FederationConfig

# Why (decision 10): no number of seconds suits a graph of 100 nodes and one of a million, but the
# clients of one run have like tasks. Ten times the time of most of them is for a client without a
# GPU among those with one; five minutes are for a node that restarts.
ADAPTIVE = inf
_FACTOR, _SHORTEST_SECONDS, _LONGEST_SECONDS = 10.0, 300.0, 3600.0


def timeout_of(config: FederationConfig) -> float:
    """Return `round-timeout` in seconds, `ADAPTIVE` where it is 0."""
    return config.round_timeout or ADAPTIVE


def silence(timeout: float | None) -> str:
    """Return in words that a client did not reply in time."""
    if timeout == ADAPTIVE:
        return "no reply in ten times the time of most clients"
    return f"no reply within {timeout} s"


class Deadline:
    """The end of a batch of messages: after `timeout` seconds, or where most replies put it.

    `ADAPTIVE` is an hour; once more than half of the clients have replied, it is ten times as long
    as they took, and five minutes at least.

    Parameters
    ----------
    timeout : seconds, `ADAPTIVE`, or None to wait for all
    asked : messages of the batch
    """

    def __init__(self, timeout: float | None, asked: int) -> None:
        self._begin, self._majority = time.monotonic(), asked // 2 + 1
        self._adaptive = timeout == ADAPTIVE
        self._limit = inf if timeout is None else timeout
        if self._adaptive:
            self._limit = _LONGEST_SECONDS

    def note(self, replies: int) -> None:
        """Take notice of how many replies have arrived."""
        if self._adaptive and replies >= self._majority:
            usual = _FACTOR * (time.monotonic() - self._begin)
            self._limit = min(self._limit, max(_SHORTEST_SECONDS, usual))
            self._adaptive = False

    def left(self) -> float:
        """Return the seconds that are left, none below 0."""
        return max(0.0, self._begin + self._limit - time.monotonic())
