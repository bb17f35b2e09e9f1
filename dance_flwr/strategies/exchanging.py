"""Generators go round, gradients come back: the messages of FedSage+ before its first round."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Message
from torch import Tensor

from dance_flwr import events, messages
from dance_flwr.config import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.mending.networks import Widths, unmade
from dance_flwr.privacy.dp import fewest_clients
from dance_flwr.strategies.averaging import State
from dance_flwr.strategies.federation import LOG, FederationGrid
from dance_flwr.strategies.judging import fault_of
from dance_flwr.strategies.naming import named, part


class GeneratorExchange:
    """theta_k <- Adam(d L_k + sum_{j != k} d L_kj), `fedsage.exchanges` times; theta_k: weights of client k's fGen.

    L_k is client k's own loss, L_kj what client j's nodes say of its generator (`dance_flwr.mending`). In each exchange
    a generator is sent to s of the M - 1 others, in turn; the gradients that come back are added up and scaled by
    (M - 1) / their number. The server hands on, adds, and keeps nothing.

    An answer that does not come, or cannot be used, is left out as long as `min-valid-replies` allows; a client whose
    generator did not come is out of what follows, and makes one alone if it trains later.

    Parameters
    ----------
    widths : of the generators; common : config of every message
    """

    def __init__(self, config: RunConfig, widths: Widths, grid: FederationGrid, common: Mapping[str, Any]) -> None:
        self._config, self._own = config, config.fedsage
        self._maker: State = unmade(widths, 0.0).state_dict()
        self._latents = widths.latent
        self._grid, self._common = grid, common
        self._nodes = {grid.client_at(node): node for node in grid.get_node_ids()}

    def run(self) -> None:
        """Let every connected client learn alone, then exchange."""
        made = self._generators(0, {client: {} for client in self._nodes})
        for number in range(self._own.exchanges):
            visits = peers_of(sorted(made), self._own.peers, number)
            sums = self._gradients(2 * number + 1, made, visits)
            made = self._generators(2 * number + 2, sums)
        told = f"{len(made)} clients have exchanged their generators {self._own.exchanges} times"
        events.emit("generators_exchanged", told, clients=len(made), exchanges=self._own.exchanges)

    def _generators(self, step: int, sums: Mapping[int, Mapping[str, Array]]) -> dict[int, Mapping[str, Array]]:
        """Send each client its sum; return, as they travel, the generators that go round next, none after the last."""
        expected = {} if step == 2 * self._own.exchanges else self._maker
        found = self._asked(step, sums, dict.fromkeys(sums, expected))
        return {client: messages.exchanged(reply) for client, reply, _ in found}

    def _gradients(
        self, step: int, made: Mapping[int, Mapping[str, Array]], visits: Mapping[int, Sequence[int]]
    ) -> dict[int, Mapping[str, Array]]:
        """Send generators to those they visit; return for each the scaled sum of what came back, if anything did."""
        inboxes: dict[int, dict[str, Array]] = {client: {} for client in made}
        expected: dict[int, State] = {client: {} for client in made}
        for client, peers in visits.items():
            for peer in peers:
                inboxes[peer] |= named(made[client], client)
                expected[peer] |= named(self._maker, client)
        sums, counts = dict[int, State](), dict.fromkeys(made, 0)
        for _, _, answer in self._asked(step, {peer: inbox for peer, inbox in inboxes.items() if inbox}, expected):
            for client in made:
                if gradient := part(answer, client):
                    counts[client] += 1
                    for name, tensor in gradient.items():
                        own = sums.setdefault(client, {})
                        own[name] = own[name].add_(tensor) if name in own else tensor
        for client, own in sums.items():
            for tensor in own.values():
                tensor.mul_((len(made) - 1) / counts[client])
        return {client: messages.arrays_of(sums.get(client, {})) for client in made}

    def _asked(
        self, step: int, inboxes: Mapping[int, Mapping[str, Array]], expected: Mapping[int, State]
    ) -> Iterator[tuple[int, Message, State]]:
        """Ask clients for a step; give the answers that can be used, one at a time, in the order of clients.

        Returns
        -------
        client, reply and its tensors

        Raises
        ------
        QuorumError : fewer clients than a round must end with answered as they should
        """
        config = {**self._common, "step": step}
        batch = [messages.exchange(self._nodes[k], config, ArrayRecord(dict(inbox))) for k, inbox in inboxes.items()]
        replies = self._grid.send_and_receive(batch, timeout=self._config.round_timeout)
        usable = 0
        for reply in replies:
            client, state = self._grid.client_of(reply), messages.state_of(messages.exchanged(reply))
            fault = self._fault(state, expected[client])
            if fault:
                self._grid.miss("upload_rejected", client, fault)
                LOG.error("left out of the exchange: client %d: %s", client, fault)
                continue
            usable += 1
            yield client, reply, state
        if usable < (fewest := min(len(replies), fewest_clients(self._config))):
            raise QuorumError(f"expected at least {fewest} usable answers in an exchange, found {usable}")

    def _fault(self, found: State, expected: State) -> str:
        """Return what is wrong with an answer, "" where nothing is."""
        names = ("latents", "counts") if expected is self._maker else ()
        batch: State = {name: found[name] for name in names if name in found}
        rest = {name: tensor for name, tensor in found.items() if name not in batch}
        return fault_of(rest, expected) or (_fault_of_batch(batch, self._latents) if expected is self._maker else "")


def _fault_of_batch(batch: Mapping[str, Tensor], width: int) -> str:
    """Return what is wrong with the nodes that a generator is tried on."""
    latents, counts = batch.get("latents"), batch.get("counts")
    if latents is None or counts is None:
        return "expected latents and counts beside a generator, found none"
    if latents.dim() != 2 or latents.size(1) != width or counts.shape != latents.shape[:1]:
        return f"expected latents [b, {width}] and counts [b], found {tuple(latents.shape)} and {tuple(counts.shape)}"
    whole = counts.dtype == torch.int64 and latents.dtype == torch.float32 and bool(torch.isfinite(latents).all())
    return "" if whole else "expected finite latents and whole counts, found others"


def peers_of(clients: Sequence[int], most: int, number: int) -> dict[int, list[int]]:
    """Return for each client the `most` others that its generator visits in this exchange, in turn; 0 = all of them.

    Each client is visited as often as it visits.
    """
    others = len(clients) - 1
    asked = min(most or others, others)
    shifts = [1 + (number * asked + turn) % others for turn in range(asked)]
    return {
        client: [clients[(place + shift) % len(clients)] for shift in shifts] for place, client in enumerate(clients)
    }
