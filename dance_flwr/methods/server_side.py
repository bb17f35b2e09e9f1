"""The server side of a method: merges the uploads of a round.

`ServerSide` is the weighted mean, which is enough for most methods. A method that must see single
uploads overrides the parts that differ. A server side knows tensors and clients but not Flower:
messages, quorum, privacy and the server's step are in `dance_flwr.federation.server.round`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.fixed_point import decode_update, encode_update, levels_for, to_grid
from dance_flwr.methods.upload_checks import statistics_fault
from dance_flwr.nn.model import ModelShape

State = dict[str, Tensor]
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Upload:
    """A valid reply to a training message.

    Attributes
    ----------
    client : number of the client; None for the masked sum of all clients
    state : the model
    weight : the client's weight in the mean
    statistics : tensors that the method's server side reads; empty for `Uplink.SUM`
    norm : of the update, as checked against the model that the client received; NaN before
    """

    client: int | None
    state: State
    weight: int
    statistics: Mapping[str, Tensor] = field(default_factory=dict)
    norm: float = nan


@dataclass(frozen=True)
class Merged:
    """The result of merging the uploads of a round.

    Attributes
    ----------
    state : the next model
    seconds, counts : of the server side itself, for the history
    loss : replaces the clients' mean loss in the history unless None
    """

    state: State
    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    loss: float | None = None


class Answer(NamedTuple):
    """A client's answer to a step of an exchange.

    Attributes
    ----------
    client : its number
    packed : its tensors in the form in which they travel, for forwarding
    state : its tensors
    """

    client: int
    packed: Mapping[str, Any]
    state: State


class Channel(Protocol):
    """The connection of a server side to its clients outside training."""

    @property
    def clients(self) -> Sequence[int]:
        """The connected clients, ascending."""
        ...

    def exchange(
        self,
        step: int,
        inboxes: Mapping[int, Mapping[str, Any]],
        check: Callable[[int, State], str],
    ) -> Iterator[Answer]:
        """Run one step of the method's exchange; yield the valid answers, ordered by client.

        Parameters
        ----------
        step : from 0
        inboxes : client -> what it is sent, tensors or `Answer.packed` values by name
        check : returns what is wrong with a client's answer, "" if it is valid; an invalid answer
            is skipped, and its sender is logged

        Raises
        ------
        QuorumError : fewer valid answers than a round needs
        """
        ...


class ServerSide:
    """omega <- sum_k w_k omega_k / sum_k w_k.

    Parameters
    ----------
    config : of the run
    shape : widths of the global model

    Attributes
    ----------
    statistics : names of the statistics that every upload must contain
    averages_rounds : whether `ema-decay` applies to its models
    memory : name -> array, the state between rounds; saved in the checkpoint
    """

    statistics: tuple[str, ...] = ()
    # Cleared where models start anew: a mean of networks from different initial weights is not a
    # network.
    averages_rounds: bool = True

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        self.config, self.shape = config, shape
        self.memory: dict[str, NDArray[Any]] = {}

    def initial(self, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the state that round 1 starts from, given the initial model."""
        return model

    def model_for(self, client: int, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the part of the model that is sent to this client, by default all of it."""
        return model

    def expected(self, start: State) -> State:
        """Return a state with the names and shapes of a valid upload, given the round's start."""
        return start

    def before_round(self, round_: int, channel: Channel) -> None:
        """Prepare round `round_`, from 1, before its messages are sent."""

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return the tensors that are sent to a client beside the model."""
        return {}

    def needs_initial_upload(self, client: int) -> bool:
        """Return whether the client's initial upload is still missing."""
        return False

    def statistics_fault(self, client: int | None, statistics: Mapping[str, Tensor]) -> str:
        """Return what is wrong with the statistics of an upload, "" if they are valid."""
        return statistics_fault(statistics, self.statistics)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Merge the uploads of a round into the next model.

        Parameters
        ----------
        uploads : at least one, ordered by client
        start : the model that the round started from
        bound : R, unit of the rounding in `weighted_mean`
        round_ : t, from 1
        """
        return Merged(weighted_mean(uploads, start, bound))


def weighted_mean(uploads: Sequence[Upload], start: Mapping[str, Tensor], bound: float) -> State:
    """sum_k w_k omega_k / sum_k w_k in fixed point: exact sums of rounded updates, in any order.

    The arithmetic is that of secure aggregation (`dance_flwr.methods.fixed_point`), so that masking
    does not change a bit of the model. For 5 clients, entries are rounded to `bound` * 2^-27, about
    the precision of a float32. A single upload is returned unchanged.

    Parameters
    ----------
    uploads : at least one
    start : the global model that the clients started from
    bound : R, unit of the rounding; larger updates are not clipped
    """
    # One upload is the mean already, and rounding it would change it.
    if len(uploads) < 2:
        return uploads[0].state
    # Why (decision 8): always in fixed point, masked or not. Float means of two runs would part in
    # the last bits, and selection has ties.
    levels, weights = levels_for(len(uploads)), sum(upload.weight for upload in uploads)
    total = np.zeros(sum(tensor.numel() for tensor in start.values()))
    for upload in uploads:  # one at a time, to hold one update in memory
        total += to_grid(encode_update(upload.state, start, upload.weight / weights, bound), levels)
    return decode_update(total, start, 1.0, bound)


def client_prefix(client: int) -> str:
    """Return the prefix of the names of a client's entries."""
    return f"client-{client}/"


def entries_under(record: Mapping[str, Entry], prefix: str) -> dict[str, Entry]:
    """Return the entries whose names start with `prefix`, named without it."""
    return {
        name.removeprefix(prefix): entry
        for name, entry in record.items()
        if name.startswith(prefix)
    }


def entries_of(record: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return the entries of one client, named without the client."""
    return entries_under(record, client_prefix(client))


def for_client(entries: Mapping[str, Entry], client: int) -> dict[str, Entry]:
    """Return entries named with their client; the inverse of `entries_of`."""
    return {client_prefix(client) + name: entry for name, entry in entries.items()}
