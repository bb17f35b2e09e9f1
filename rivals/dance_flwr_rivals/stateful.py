"""A server side that stores what its clients upload once.

A client uploads its condensed graph once. The server requests it until it has arrived, so that
neither a lost reply nor an absent client loses a graph.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dance_flwr.methods.server_side import Merged, ServerSide, State, Upload, entries_of, for_client
from dance_flwr.methods.upload_checks import statistics_fault


class StatefulServerSide(ServerSide):
    """Stores the latest statistics of every client; the next base class merges the models.

    Attributes
    ----------
    statistics : names of the statistics of every round
    once : names of the statistics that each client uploads once
    memory : "client-3/features" -> array, all collected statistics; a subclass may store entries
        of its own under other names
    """

    once: tuple[str, ...] = ()

    def upload_fault(self, client: int, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault in the shapes or ranges of a client's statistics, "" if they are valid."""
        return ""

    def holders(self) -> list[int]:
        """Return the clients whose initial upload is stored, ascending."""
        # One tensor stands for all: the upload of a client is checked and stored as a whole.
        first = "/" + self.once[0]
        names = (name for name in self.memory if first in name)
        return sorted(int(name.removesuffix(first).removeprefix("client-")) for name in names)

    def collected(self, client: int) -> dict[str, Tensor]:
        """Return the latest statistics of a client, including those of its initial upload."""
        arrays = entries_of(self.memory, client)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def needs_initial_upload(self, client: int) -> bool:
        """Return whether this client's initial upload is missing."""
        return client not in self.holders()

    def statistics_fault(self, client: int | None, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault of the names or numbers, or else the result of `upload_fault`."""
        assert client is not None, "single uploads are unknown under a masked sum"
        # Why (decision 11): required until it is stored and refused afterwards, so that S travels
        # once.
        once = self.once if self.needs_initial_upload(client) else ()
        names = (*self.statistics, *once)
        return statistics_fault(statistics, names) or self.upload_fault(client, statistics)

    def store(self, uploads: Sequence[Upload]) -> None:
        """Store the statistics of a round's uploads."""
        for upload in uploads:
            assert upload.client is not None
            arrays = {name: tensor.numpy() for name, tensor in upload.statistics.items()}
            self.memory |= for_client(arrays, upload.client)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Store the statistics of a round, then merge its models as the next base class does."""
        self.store(uploads)
        return super().merge(uploads, start, bound, round_)
