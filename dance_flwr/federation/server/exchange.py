"""Exchange tensors between clients through the server, step by step, before round 1."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from flwr.app import Array, ArrayRecord

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.federation.privacy.dp import fewest_clients
from dance_flwr.federation.server.deadline import timeout_of
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.wire import configs, messages
from dance_flwr.federation.wire.tensors import array_of, state_of
from dance_flwr.methods.server_side import Answer, State
from dance_flwr.methods.upload_checks import statistics_fault


class GridChannel:
    """Connect a server side to the clients of a Grid: a `methods.server_side.Channel`."""

    def __init__(self, grid: FederationGrid, config: RunConfig, common: Mapping[str, Any]) -> None:
        self._grid, self._config = grid, config
        self._common = configs.run_settings(common)

    @cached_property
    def _nodes(self) -> dict[int, int]:
        # Cached: all steps of an exchange are between the clients that were there at its start.
        return {self._grid.nodes[node]: node for node in self._grid.get_node_ids()}

    @property
    def clients(self) -> Sequence[int]:
        """The connected clients, ascending."""
        return list(self._nodes)

    def exchange(
        self,
        step: int,
        inboxes: Mapping[int, Mapping[str, Any]],
        check: Callable[[int, State], str],
    ) -> Iterator[Answer]:
        """Run one step; yield the valid answers one at a time, in the order of clients."""
        batch = [
            messages.exchange(self._nodes[client], self._common, step, _record(inbox))
            for client, inbox in inboxes.items()
        ]
        replies = self._grid.send_and_receive(batch, timeout=timeout_of(self._config))
        valid = 0
        for reply in replies:
            client, packed = self._grid.client_of(reply), messages.exchange_record(reply)
            state = state_of(packed)
            # What no method can use is refused first; the method's own rules come after.
            if fault := _readable_fault(state) or check(client, state):
                self._grid.mark_absent("upload_rejected", client, fault)
                LOG.error("omitted from the exchange: client %d: %s", client, fault)
                continue
            valid += 1
            yield Answer(client, packed, state)
        # As in a round: a mean over fewer clients is another result, and is not made silently.
        if valid < (fewest := min(len(replies), fewest_clients(self._config))):
            raise QuorumError(
                f"expected at least {fewest} valid answers in an exchange, found {valid}; "
                "the log says what was wrong with the others"
            )


def _readable_fault(state: State) -> str:
    """Return what is wrong with any tensors of an exchange: they are not finite, or huge."""
    return statistics_fault(state, list(state))


def _record(inbox: Mapping[str, Any]) -> ArrayRecord:
    """Return tensors, and arrays that are forwarded unread, as one record."""
    return ArrayRecord(
        {
            # What is forwarded unread keeps its bytes.
            name: value if isinstance(value, Array) else array_of(value)
            for name, value in inbox.items()
        }
    )
