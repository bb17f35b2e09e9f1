"""The server side of FedC4: FedAvg, and condensed nodes of like clients for each client."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.condensation.matching import Condensed
from dance_flwr.methods.condensation.uploads import GRAPH, graph_fault, graph_in
from dance_flwr.methods.fedc4.config import FedC4Config
from dance_flwr.methods.fedc4.selectors import Chosen, chosen_for, exchanged, groups_of, rebuilt
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.methods.upload_checks import shapes_fault
from dance_flwr.nn.model import ModelShape


class FedC4Server(StatefulServerSide):
    """omega <- sum_k n_k omega_k / sum_k n_k; client k is given what `selectors` chooses and
    rebuilds.

    Both follow from the uploads of the rounds before, so that a run that is resumed gives the same.
    A graph is only made anew when other nodes were chosen. The history says how many nodes were
    handed out.
    """

    statistics = ("embeddings",)
    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        super().__init__(config, shape)
        self._own = FedC4Config.of(config)
        # Of the clients that have uploaded: their condensed graphs, embeddings and groups.
        self.graphs: dict[int, Condensed] = {}
        self.embeddings: dict[int, Tensor] = {}
        self.groups: dict[int, int] = {}
        # Of this round: seconds of choosing and rebuilding, nodes handed out.
        self._seconds, self._nodes = 0.0, 0
        # client -> the nodes that were chosen last, and their graph
        self._made: dict[int, tuple[str, Tensor]] = {}

    def before_round(self, round_: int, channel: Channel) -> None:
        """Group the clients that have uploaded."""
        begin, self._nodes = time.perf_counter(), 0
        if not self._own.released_code:
            collected = {client: self.collected(client) for client in self.holders()}
            self.graphs = {client: graph_in(own) for client, own in collected.items()}
            self.embeddings = {client: own["embeddings"] for client, own in collected.items()}
            self.groups = groups_of(self.embeddings, self._own.groups)
        self._seconds = time.perf_counter() - begin

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return "features" and "labels" of others' rows and the "adjacency" of own and given ones.

        Nothing before the client's first upload, nor to a client without condensed nodes.
        """
        if client not in self.groups:
            return {}
        begin = time.perf_counter()
        chosen = chosen_for(client, self.embeddings, self.groups, self._own.threshold)
        whole = exchanged(self.graphs[client], self.graphs, chosen)
        adjacency = self._adjacency(client, chosen, whole)
        own = len(self.graphs[client].labels)
        self._nodes += len(whole.labels) - own
        self._seconds += time.perf_counter() - begin
        return {
            "features": whole.features[own:],
            "labels": whole.labels[own:],
            "adjacency": adjacency,
        }

    def upload_fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Judge S where it is there, and whether there is an embedding of each of its rows."""
        if GRAPH[0] in found:
            if fault := graph_fault(found, self.shape.text_dim, self.shape.classes):
                return fault
            rows = len(found["labels"])
        else:
            rows = len(self.collected(client)["labels"])
        return shapes_fault(found, {"embeddings": (torch.float32, (rows, self.shape.hidden_dim))})

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the mean, the server's seconds ("rebuild") and the nodes that were handed out."""
        merged = super().merge(uploads, start, bound, round_)
        return replace(
            merged, seconds={"rebuild": self._seconds}, counts={"nodes-given": self._nodes}
        )

    def _adjacency(self, client: int, chosen: Chosen, whole: Condensed) -> Tensor:
        """Return the graph over own and chosen rows, the one of the last round where the same were
        chosen.
        """
        settings = self._own
        if not settings.rebuild:
            return whole.adjacency
        name = str({other: rows.tolist() for other, rows in chosen.items()})
        last, made = self._made.get(client, ("", whole.adjacency))
        if last != name:
            weights = settings.similarity_weight, settings.sparsity_weight
            made = rebuilt(whole.features, *weights, settings.rebuild_steps)
            self._made[client] = name, made
        return made
