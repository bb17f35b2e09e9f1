"""The model of a message, read once for all clients of a process that receive it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from flwr.app import Array, ArrayRecord, Message
from torch import Tensor

from dance_flwr.federation.wire import messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.fingerprint import model_fingerprint


@dataclass(frozen=True, eq=False)
class Received:
    """A model as the server sent it; nobody changes its tensors, which clients share.

    Attributes
    ----------
    model_id : its `model_fingerprint`
    """

    state: Mapping[str, Tensor]
    model_id: str


def received(message: Message) -> Received:
    """Return the model that came with a message; the same object for the same bytes."""
    # By content: Python hashes a bytes object once, however many messages share it.
    arrays = messages.arrays_in(message).items()
    return _read(tuple((n, a.dtype, tuple(a.shape), a.stype, a.data) for n, a in arrays))


@lru_cache(maxsize=1)  # the clients of a round are sent one model
def _read(arrays: tuple[tuple[str, str, tuple[int, ...], str, bytes], ...]) -> Received:
    record = {name: Array(kind, shape, of, data) for name, kind, shape, of, data in arrays}
    state = state_of(ArrayRecord(record))
    return Received(state, model_fingerprint(state))
