"""A model of each client, kept by the server in one record: "client-3/head_graph.bias".

Whatever keeps, saves and resumes a model does so with those of all clients at once. A client is
sent its own part alone, and one that takes no part in a round keeps its last model.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from dance_flwr.methods.by_client import entries_of, for_client
from dance_flwr.methods.server_side import Entry, Merged, ServerSide, State, Upload


class Personalised(ServerSide):
    """omega_k <- the model that client k has just trained: nothing is shared.

    A server side that shares overrides `combine`.
    """

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the next model of each of these clients, and counts for the history.

        Parameters
        ----------
        models, statistics : by client, what the clients of this round uploaded, ordered by client
        """
        return models, {}

    def initial(self, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the initial model M times, once under the name of each client."""
        every = (for_client(model, client) for client in range(self.config.clients))
        return {name: entry for own in every for name, entry in own.items()}

    def model_for(self, client: int, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the client's own model."""
        return entries_of(model, client)

    def expected(self, start: State) -> State:
        """Return names and shapes of one client's model; they are the same at all clients."""
        return entries_of(start, 0)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the models of all clients; those that sent nothing keep theirs."""
        models = {_known(upload): upload.state for upload in uploads}
        statistics = {_known(upload): upload.statistics for upload in uploads}
        made, counts = self.combine(models, statistics)
        new = {
            name: tensor
            for client, own in made.items()
            for name, tensor in for_client(own, client).items()
        }
        return Merged({name: new.get(name, old) for name, old in start.items()}, counts=counts)


def _known(upload: Upload) -> int:
    assert upload.client is not None, "personalised models need single uploads"
    return upload.client
