"""One model per client, stored by the server in one state: "client-3/head_graph.bias".

Validation, checkpoints and resumption thus treat the models of all clients like one global model. A
client is only sent its own part; a client that skips a round keeps its last model.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from dance_flwr.methods.server_side import (
    Entry,
    Merged,
    ServerSide,
    State,
    Upload,
    entries_of,
    for_client,
)


class Personalised(ServerSide):
    """omega_k <- the model that client k has just trained; nothing is shared.

    A server side that shares overrides `combine`.
    """

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the next model of each client of the round, and counts for the history.

        Parameters
        ----------
        models, statistics : client -> what it uploaded in this round, ordered by client
        """
        return models, {}

    def initial(self, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return M copies of the initial model, one per client."""
        # The same start at all clients, as if there were one model.
        return _join({client: model for client in range(self.config.clients)})

    def model_for(self, client: int, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the client's own model."""
        return entries_of(model, client)

    def expected(self, start: State) -> State:
        """Return one client's model; names and shapes are the same at all clients."""
        return entries_of(start, 0)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the models of all clients; those without an upload are unchanged."""
        models = {_client_of(upload): upload.state for upload in uploads}
        statistics = {_client_of(upload): upload.statistics for upload in uploads}
        combined, counts = self.combine(models, statistics)
        new = _join(combined)
        # A client without an upload keeps its last model: FedGTA, for instance, has no mean for it.
        return Merged({name: new.get(name, old) for name, old in start.items()}, counts=counts)


def _join(models: Mapping[int, Mapping[str, Entry]]) -> dict[str, Entry]:
    return {
        name: entry
        for client, model in models.items()
        for name, entry in for_client(model, client).items()
    }


def _client_of(upload: Upload) -> int:
    assert upload.client is not None, "personalised models need single uploads"
    return upload.client
