"""The server side of FedSage+: an exchange of generators before round 1, then FedAvg."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dance_flwr import events
from dance_flwr.methods.server_side import Channel, ServerSide, State, entries_of, for_client
from dance_flwr.methods.upload_checks import model_fault
from dance_flwr_rivals.condensation.graphs import ExpectedShapes, shapes_fault
from dance_flwr_rivals.fedsage import FedSageConfig
from dance_flwr_rivals.fedsage.networks import empty_feature_generator

Packed = Mapping[str, Any]  # tensors as they travel
_EXCHANGED = "exchanged"


class GeneratorExchange:
    """theta_k <- Adam(d L_k + sum_{j != k} d L_kj), `fedsage.exchanges` times.

    theta_k are the weights of client k's fGen, L_k is its own loss, and L_kj its loss on the nodes
    of client j (`dance_flwr_rivals.fedsage.neighgen`). In each exchange a generator is sent to s
    of the M - 1 others, in turn. The gradients that come back are summed and scaled by
    (M - 1) / their number. The server forwards and sums; it stores nothing.

    A missing or invalid answer is skipped as long as `min-valid-replies` allows. A client whose
    generator is missing leaves the exchange, and trains one alone if it joins a later round.

    Parameters
    ----------
    text_dim : width of the features
    channel : to the clients
    """

    def __init__(self, settings: FedSageConfig, text_dim: int, channel: Channel) -> None:
        self._settings, self._channel = settings, channel
        self._generator: State = empty_feature_generator(text_dim, settings, 0.0).state_dict()

    def run(self) -> None:
        """Let every connected client train alone, then run the exchanges."""
        exchanges = self._settings.exchanges
        # Step 0: every client trains alone. Then pairs of steps: visits, and updates by their
        # gradients.
        generators = self._generators(0, {client: {} for client in self._channel.clients})
        for number in range(exchanges):
            visits = peers_of(sorted(generators), self._settings.peers, number)
            sums = self._gradients(2 * number + 1, generators, visits)
            generators = self._generators(2 * number + 2, sums)
        clients = len(generators)
        message = f"{clients} clients have exchanged their generators {exchanges} times"
        events.emit("generators_exchanged", message, clients=clients, exchanges=exchanges)

    def _generators(self, step: int, sums: Mapping[int, Packed]) -> dict[int, Packed]:
        """Send each client its sum; return the next generators, none after the last step."""
        # The last answers are empty: generated neighbours stay at their client.
        last = step == 2 * self._settings.exchanges

        def check(client: int, answer: State) -> str:
            return model_fault(answer, {}) if last else self._generator_fault(client, answer)

        return {
            answer.client: answer.packed for answer in self._channel.exchange(step, sums, check)
        }

    def _gradients(
        self, step: int, generators: Mapping[int, Packed], visits: Mapping[int, Sequence[int]]
    ) -> dict[int, Packed]:
        """Send generators to the clients they visit; return the scaled sum of gradients of each."""
        inboxes: dict[int, dict[str, Any]] = {client: {} for client in generators}
        expected: dict[int, State] = {client: {} for client in generators}
        for client, peers in visits.items():
            for peer in peers:
                inboxes[peer] |= for_client(generators[client], client)
                expected[peer] |= for_client(self._generator, client)
        sums, counts = dict[int, State](), dict.fromkeys(generators, 0)
        filled = {peer: inbox for peer, inbox in inboxes.items() if inbox}

        def check(peer: int, answer: State) -> str:
            return model_fault(answer, expected[peer])

        # Added as they come, so that one answer is in memory.
        for answer in self._channel.exchange(step, filled, check):
            for client in generators:
                if gradient := entries_of(answer.state, client):
                    counts[client] += 1
                    total = sums.setdefault(client, {})
                    for name, tensor in gradient.items():
                        total[name] = total[name].add_(tensor) if name in total else tensor
        for client, total in sums.items():
            for tensor in total.values():
                # Scaled to all M - 1 others: a generator visits some of them in each exchange.
                tensor.mul_((len(generators) - 1) / counts[client])
        return {client: sums.get(client, {}) for client in generators}

    def _generator_fault(self, client: int, answer: State) -> str:
        batch: State = {name: answer[name] for name in ("latents", "counts") if name in answer}
        weights = {name: tensor for name, tensor in answer.items() if name not in batch}
        if fault := model_fault(weights, self._generator):
            return fault
        rows = len(batch["counts"]) if batch.get("counts", torch.ones(())).dim() else 0
        shapes: ExpectedShapes = {
            "latents": (torch.float32, (rows, self._settings.latent_dim)),
            "counts": (torch.int64, (rows,)),
        }
        if (fault := shapes_fault(batch, shapes)) or bool(torch.isfinite(batch["latents"]).all()):
            return fault
        return "expected finite latents, found others"


def peers_of(clients: Sequence[int], limit: int, number: int) -> dict[int, list[int]]:
    """Return for each client the `limit` others that its generator visits in exchange `number`.

    Peers take turns from exchange to exchange, and each client is visited as often as it visits.

    Parameters
    ----------
    limit : 0 = all others
    number : of the exchange, from 0
    """
    others = len(clients) - 1
    count = min(limit or others, others)
    # Shifts of a ring: each client visits others only, and is visited as often as it visits.
    shifts = [1 + (number * count + turn) % others for turn in range(count)]
    return {
        client: [clients[(place + shift) % len(clients)] for shift in shifts]
        for place, client in enumerate(clients)
    }


class FedSageServer(ServerSide):
    """FedAvg on augmented graphs, after the clients have trained their generators together.

    A run that is killed before the end of its first round repeats the exchange; one that is
    killed later does not.

    Attributes
    ----------
    memory : "exchanged" -> 1 after the exchange
    """

    def before_round(self, round_: int, channel: Channel) -> None:
        """Run the exchange, once."""
        # Why (decision 11): the exchange is no round, and a resumed run must not repeat it.
        settings = FedSageConfig.of(self.config)
        if settings.max_generated_per_node and _EXCHANGED not in self.memory:
            GeneratorExchange(settings, self.shape.text_dim, channel).run()
            self.memory[_EXCHANGED] = np.ones(1, np.int64)
