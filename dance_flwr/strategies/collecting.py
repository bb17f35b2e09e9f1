"""A server side that keeps what its clients upload once, and hands each client something beside the model.

A condensed graph is uploaded in the first round that its client takes part in and never again. The server asks for it
(`messages.FIRST`) until it has it, so a reply that was lost, or a client that was absent, costs no graph.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr import messages
from dance_flwr.strategies.averaging import Averaging, State, Upload, fault_of_statistics
from dance_flwr.strategies.federation import FederationGrid
from dance_flwr.strategies.naming import named, part


class Collecting(Averaging, FedAvg):
    """Keeps the latest statistics of every client; what becomes of the models is left to the next base.

    Attributes
    ----------
    statistics : names of what comes in every round; once : names of what comes once from each client
    memory : "client-3/features" -> array, all that was collected; part of the checkpoint. A server side may keep
        entries of its own under other names
    """

    once: tuple[str, ...] = ()
    grid: FederationGrid

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.memory: dict[str, NDArray[Any]] = {}

    def given(self, client: int) -> Mapping[str, Tensor]:
        """Return what a client is sent beside the model to train with; nothing unless a server side says so."""
        return {}

    def fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Return what is wrong with the shapes or ranges of a client's statistics; "" where nothing is.

        Parameters
        ----------
        found : finite, with the names that were asked for
        """
        return ""

    def holders(self) -> list[int]:
        """Return the clients whose once-only upload is here, ascending."""
        first = "/" + self.once[0]
        return sorted(int(name.removesuffix(first).removeprefix("client-")) for name in self.memory if first in name)

    def collected(self, client: int) -> dict[str, Tensor]:
        """Return the latest statistics of a client, those that come once among them."""
        return {name: torch.from_numpy(array) for name, array in part(self.memory, client).items()}

    def fault_beside(self, reply: Message) -> str:
        """Judge names and numbers as everywhere, then what `fault` says."""
        client = self.grid.client_of(reply)
        found = messages.statistics_of(reply)
        names = self.statistics if client in self.holders() else (*self.statistics, *self.once)
        return fault_of_statistics(found, names) or self.fault(client, found)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the clients of a round to train, and those whose once-only upload is missing for that."""
        assert isinstance(grid, FederationGrid)
        batch = super().configure_train(server_round, arrays, config, grid)
        return [self._addressed(message, grid.client_at(message.metadata.dst_node_id)) for message in batch]

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Keep the statistics of a round, then do with its models what the next base does."""
        for reply, _ in uploads:
            found = {name: tensor.numpy() for name, tensor in messages.statistics_of(reply).items()}
            self.memory |= named(found, self.grid.client_of(reply))
        return super().merge(uploads, start, bound, round_)

    def _addressed(self, message: Message, client: int) -> Message:
        """Return the message with what is for this client alone."""
        records = dict(message.content)
        if client not in self.holders():
            records[messages.CONFIG] = ConfigRecord(messages.config_of(message) | {messages.FIRST: True})
        if beside := self.given(client):
            records[messages.GIVEN] = messages.arrays_of(beside)
        return messages.with_content(message, RecordDict(records))
