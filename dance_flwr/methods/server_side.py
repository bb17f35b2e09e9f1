"""The server side of a method: what becomes of a round's uploads.

`ServerSide` is the weighted mean, all that most methods need. A method that must see single uploads
overrides the parts that differ. It knows tensors and clients, and nothing of Flower: messages,
quorum, privacy and the server's step are `dance_flwr.federation.server.round`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.upload_checks import statistics_fault
from dance_flwr.nn.model import ModelShape
from dance_flwr.privacy.vectors import decode_update, encode_update, levels_for, to_grid

State = dict[str, Tensor]
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Upload:
    """A valid answer to a training message.

    Attributes
    ----------
    client : its number; None = all clients together, where only their masked sum is known
    state : the model; weight : the client's weight in the mean
    statistics : float tensors that the method's server side reads; none for a method of sums
    """

    client: int | None
    state: State
    weight: int
    statistics: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Merged:
    """What becomes of a round's uploads.

    Attributes
    ----------
    state : the next model
    seconds, counts : of the server side itself, for the history
    loss : in the place of the clients' mean loss; None = that one
    """

    state: State
    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    loss: float | None = None


class Answer(NamedTuple):
    """A client's answer to a step of an exchange.

    Attributes
    ----------
    client : its number; packed : its tensors as they travel, to be handed on; state : its tensors
    """

    client: int
    packed: Mapping[str, Any]
    state: State


class Channel(Protocol):
    """How a server side talks to its clients outside training."""

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
        """Ask clients for a step of the method's exchange; yield the valid answers by client.

        Parameters
        ----------
        inboxes : client -> what it is sent, tensors or `Answer.packed` values by name
        check : says what is wrong with a client's answer, "" where nothing is; such an answer is
            left out and its sender named

        Raises
        ------
        QuorumError : fewer valid answers than a round must end with
        """
        ...


class ServerSide:
    """omega <- sum_k w_k omega_k / sum_k w_k.

    Parameters
    ----------
    config : of the run; shape : widths of the global model

    Attributes
    ----------
    statistics : names of the statistics that every upload must bring
    averages_rounds : whether `ema-decay` applies to its models
    memory : name -> array, all that must survive a stop; part of the checkpoint
    """

    statistics: tuple[str, ...] = ()
    averages_rounds: bool = True

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        self.config, self.shape = config, shape
        self.memory: dict[str, NDArray[Any]] = {}

    def initial(self, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return what round 1 starts from, given the entries of the initial model."""
        return model

    def model_for(self, client: int, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the entries of the model that this client is sent: all of them, or its own part."""
        return model

    def expected(self, start: State) -> State:
        """Return names and shapes that an upload must have, given what the round started from."""
        return start

    def before_round(self, round_: int, channel: Channel) -> None:
        """Do what must precede the messages of round `round_`, from 1."""

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return what a client is sent beside the model to train with."""
        return {}

    def needs_initial_upload(self, client: int) -> bool:
        """Whether the server still lacks what this client uploads once."""
        return False

    def statistics_fault(self, client: int | None, found: Mapping[str, Tensor]) -> str:
        """Return what is wrong with the statistics of an upload; "" where nothing is."""
        return statistics_fault(found, self.statistics)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return what becomes of the uploads of a round.

        Parameters
        ----------
        uploads : at least one, ordered by client
        start : the model that the round started from
        bound : R, unit of the rounding in `weighted_mean`
        """
        return Merged(weighted_mean(uploads, start, bound))


def weighted_mean(uploads: Sequence[Upload], start: Mapping[str, Tensor], bound: float) -> State:
    """sum_k w_k omega_k / sum_k w_k in fixed point: exact sums of rounded updates, in any order.

    The arithmetic is that of secure aggregation (`dance_flwr.privacy.vectors`), so that masks
    change no bit of a model. Entries are rounded to `bound` * 2^-27 for 5 clients, about the
    precision of a float32. A single upload is returned as it is.

    Parameters
    ----------
    uploads : at least one
    start : the global model that the clients started from
    bound : R, unit of the rounding; larger updates are taken as they are
    """
    if len(uploads) < 2:
        return uploads[0].state
    levels, whole = levels_for(len(uploads)), sum(upload.weight for upload in uploads)
    total = np.zeros(sum(tensor.numel() for tensor in start.values()))
    for upload in uploads:  # one at a time: memory of one update, not of all
        total += to_grid(encode_update(upload.state, start, upload.weight / whole, bound), levels)
    return decode_update(total, start, 1.0, bound)
