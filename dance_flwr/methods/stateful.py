"""A server side that keeps what its clients upload once.

A condensed graph is uploaded in the first round that its client takes part in and never again. The
server asks for it until it has it, so a reply that was lost, or a client that was absent, costs no
graph.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dance_flwr.methods.by_client import entries_of, for_client
from dance_flwr.methods.server_side import Merged, ServerSide, State, Upload
from dance_flwr.methods.upload_checks import statistics_fault


class StatefulServerSide(ServerSide):
    """Keeps the latest statistics of every client; the models are left to the next base.

    Attributes
    ----------
    statistics : names of what comes in every round; once : names of what comes once from each
        client
    memory : "client-3/features" -> array, all that was collected. A subclass may keep entries of
        its own under other names
    """

    once: tuple[str, ...] = ()

    def upload_fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Return what is wrong with the shapes or ranges of a client's statistics; "" = nothing.

        Parameters
        ----------
        found : finite, with the names that were asked for
        """
        return ""

    def holders(self) -> list[int]:
        """Return the clients whose once-only upload is here, ascending."""
        first = "/" + self.once[0]
        names = (name for name in self.memory if first in name)
        return sorted(int(name.removesuffix(first).removeprefix("client-")) for name in names)

    def collected(self, client: int) -> dict[str, Tensor]:
        """Return the latest statistics of a client, those that come once among them."""
        own = entries_of(self.memory, client)
        return {name: torch.from_numpy(array) for name, array in own.items()}

    def needs_initial_upload(self, client: int) -> bool:
        """Whether this client's once-only upload is missing."""
        return client not in self.holders()

    def statistics_fault(self, client: int | None, found: Mapping[str, Tensor]) -> str:
        """Check names and numbers as everywhere, then what `upload_fault` says."""
        assert client is not None, "what one client uploads is not known of a masked sum"
        needed = self.once if self.needs_initial_upload(client) else ()
        names = (*self.statistics, *needed)
        return statistics_fault(found, names) or self.upload_fault(client, found)

    def keep(self, uploads: Sequence[Upload]) -> None:
        """Keep the statistics of a round's uploads."""
        for upload in uploads:
            assert upload.client is not None
            found = {name: tensor.numpy() for name, tensor in upload.statistics.items()}
            self.memory |= for_client(found, upload.client)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Keep the statistics of a round, then merge its models as the next base does."""
        self.keep(uploads)
        return super().merge(uploads, start, bound, round_)
