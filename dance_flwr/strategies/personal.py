"""A model of each client, kept by the server in one record whose names carry the client: "client-3/head_graph.bias".

So whatever keeps, saves and goes on with a model does so with those of all clients at once. A client is sent its own
part alone, and one that takes no part in a round keeps its last model.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from dance_flwr import messages
from dance_flwr.strategies.averaging import Averaging, State, Upload
from dance_flwr.strategies.federation import FederationGrid
from dance_flwr.strategies.naming import named, part


def model_for(arrays: ArrayRecord, client: int) -> ArrayRecord:
    """Return the part of a record that is for this client: its own model, or the one model for all."""
    own = part(arrays, client)
    return ArrayRecord(own) if own else arrays


class Personal(Averaging, FedAvg):
    """omega_k <- the model that client k has just trained: nothing is shared. A server side that shares overrides
    `combine`.

    Parameters
    ----------
    clients : M
    """

    grid: FederationGrid

    def __init__(self, clients: int, **options: Any) -> None:
        super().__init__(**options)
        self.clients = clients

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the next model of each of these clients, and counts for the history.

        Parameters
        ----------
        models, statistics : by client, what the clients of this round uploaded, ordered by client
        """
        return models, {}

    def first(self, model: ArrayRecord) -> ArrayRecord:
        """Return the initial model M times, once under the name of each client."""
        every = (named(model, client) for client in range(self.clients))
        return ArrayRecord({name: array for own in every for name, array in own.items()})

    def expected(self, start: State) -> State:
        """Return names and shapes of one client's model; they are the same at all clients."""
        return part(start, 0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the clients of a round to train, each its own model."""
        return _handed_out(super().configure_train(server_round, arrays, config, grid), grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients to validate, each its own model."""
        return _handed_out(super().configure_evaluate(server_round, arrays, config, grid), grid)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return one reply with the models of all clients; those that sent nothing keep theirs."""
        if not uploads:
            return []
        models = {self.grid.client_of(reply): model for reply, model in uploads}
        statistics = {self.grid.client_of(reply): messages.statistics_of(reply) for reply, _ in uploads}
        made, counts = self.combine(models, statistics)
        new = {name: tensor for client, own in made.items() for name, tensor in named(own, client).items()}
        replies = [reply for reply, _ in uploads]
        metrics = MetricRecord(messages.sum_metrics([reply.content for reply in replies]) | counts)
        arrays = messages.arrays_of({name: new.get(name, tensor) for name, tensor in start.items()})
        return [messages.with_content(replies[0], RecordDict({messages.ARRAYS: arrays, messages.METRICS: metrics}))]


def _handed_out(batch: Iterable[Message], grid: Grid) -> list[Message]:
    """Return the messages, each with the model of the client that it goes to."""
    assert isinstance(grid, FederationGrid)
    made = []
    for message in batch:
        own = model_for(message.content.array_records[messages.ARRAYS], grid.client_at(message.metadata.dst_node_id))
        made.append(messages.with_content(message, RecordDict(dict(message.content) | {messages.ARRAYS: own})))
    return made
