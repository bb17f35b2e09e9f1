"""Generators go round, gradients come back: what FedSage+ exchanges before its first round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.methods.by_client import entries_of, for_client
from dance_flwr.methods.fedsage.config import FedSageConfig
from dance_flwr.methods.fedsage.neighgen.networks import Widths, unmade
from dance_flwr.methods.server_side import Channel, State
from dance_flwr.methods.upload_checks import model_fault

Packed = Mapping[str, Any]  # tensors as they travel


class GeneratorExchange:
    """theta_k <- Adam(d L_k + sum_{j != k} d L_kj), `fedsage.exchanges` times.

    theta_k are the weights of client k's fGen, L_k is its own loss, and L_kj what client j's nodes
    say of its generator (`dance_flwr.methods.fedsage.neighgen`). In each exchange a generator is
    sent to s of the M - 1 others, in turn; the gradients that come back are added up and scaled by
    (M - 1) / their number. The server hands on, adds, and keeps nothing.

    An answer that does not come, or cannot be used, is left out as long as `min-valid-replies`
    allows; a client whose generator did not come is out of what follows, and learns one alone if it
    trains later.

    Parameters
    ----------
    widths : of the generators; channel : to the clients
    """

    def __init__(self, settings: FedSageConfig, widths: Widths, channel: Channel) -> None:
        self._settings, self._channel = settings, channel
        self._generator: State = unmade(widths, 0.0).state_dict()
        self._latent_dim = widths.latent

    def run(self) -> None:
        """Let every connected client learn alone, then exchange."""
        exchanges = self._settings.exchanges
        made = self._generators(0, {client: {} for client in self._channel.clients})
        for number in range(exchanges):
            visits = peers_of(sorted(made), self._settings.peers, number)
            sums = self._gradients(2 * number + 1, made, visits)
            made = self._generators(2 * number + 2, sums)
        message = f"{len(made)} clients have exchanged their generators {exchanges} times"
        events.emit("generators_exchanged", message, clients=len(made), exchanges=exchanges)

    def _generators(self, step: int, sums: Mapping[int, Packed]) -> dict[int, Packed]:
        """Send each client its sum; return the generators that go round next, none after the last."""
        last = step == 2 * self._settings.exchanges
        check = _fault_of_nothing if last else self._fault_of_generator
        return {
            answer.client: answer.packed for answer in self._channel.exchange(step, sums, check)
        }

    def _gradients(
        self, step: int, made: Mapping[int, Packed], visits: Mapping[int, Sequence[int]]
    ) -> dict[int, Packed]:
        """Send generators to those they visit; return for each the scaled sum of what came back."""
        inboxes: dict[int, dict[str, Any]] = {client: {} for client in made}
        expected: dict[int, State] = {client: {} for client in made}
        for client, peers in visits.items():
            for peer in peers:
                inboxes[peer] |= for_client(made[client], client)
                expected[peer] |= for_client(self._generator, client)
        sums, counts = dict[int, State](), dict.fromkeys(made, 0)
        sent = {peer: inbox for peer, inbox in inboxes.items() if inbox}

        def check(peer: int, found: State) -> str:
            return model_fault(found, expected[peer])

        for answer in self._channel.exchange(step, sent, check):
            for client in made:
                if gradient := entries_of(answer.state, client):
                    counts[client] += 1
                    _add(sums.setdefault(client, {}), gradient)
        for client, own in sums.items():
            for tensor in own.values():
                tensor.mul_((len(made) - 1) / counts[client])
        return {client: sums.get(client, {}) for client in made}

    def _fault_of_generator(self, client: int, found: State) -> str:
        """Return what is wrong with a generator and the nodes that it is tried on."""
        batch: State = {name: found[name] for name in ("latents", "counts") if name in found}
        rest = {name: tensor for name, tensor in found.items() if name not in batch}
        return model_fault(rest, self._generator) or _fault_of_batch(batch, self._latent_dim)


def _fault_of_nothing(client: int, found: State) -> str:
    """Return what is wrong with an answer that must hold nothing."""
    return model_fault(found, {})


def _add(total: State, gradient: State) -> None:
    """Add a gradient to a sum, in place."""
    for name, tensor in gradient.items():
        total[name] = total[name].add_(tensor) if name in total else tensor


def _fault_of_batch(batch: Mapping[str, Tensor], width: int) -> str:
    """Return what is wrong with the nodes that a generator is tried on."""
    latents, counts = batch.get("latents"), batch.get("counts")
    if latents is None or counts is None:
        return "expected latents and counts beside a generator, found none"
    if latents.dim() != 2 or latents.size(1) != width or counts.shape != latents.shape[:1]:
        return f"expected latents [b, {width}] and counts [b], found {tuple(latents.shape)} and {tuple(counts.shape)}"
    whole = (
        counts.dtype == torch.int64
        and latents.dtype == torch.float32
        and bool(torch.isfinite(latents).all())
    )
    return "" if whole else "expected finite latents and whole counts, found others"


def peers_of(clients: Sequence[int], most: int, number: int) -> dict[int, list[int]]:
    """Return for each client the `most` others that its generator visits in this exchange, in turn;
    0 = all of them.

    Each client is visited as often as it visits.
    """
    others = len(clients) - 1
    asked = min(most or others, others)
    shifts = [1 + (number * asked + turn) % others for turn in range(asked)]
    return {
        client: [clients[(place + shift) % len(clients)] for shift in shifts]
        for place, client in enumerate(clients)
    }
