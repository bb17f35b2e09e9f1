"""The server side of FedC4 (Chen et al. 2025): FedAvg, and condensed nodes of like clients for each client."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from dance_flwr import messages
from dance_flwr.condense.exchange import Chosen, chosen_for, exchanged, groups_of, rebuilt
from dance_flwr.condense.matching import Condensed
from dance_flwr.condense.uploads import GRAPH, fault_of_graph, fault_of_shapes, graph_in
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape
from dance_flwr.strategies.averaging import State, Upload
from dance_flwr.strategies.collecting import Collecting


class FedC4(Collecting):
    """omega <- sum_k n_k omega_k / sum_k n_k; client k is given what `condense.exchange` chooses and rebuilds for it.

    Both follow from the uploads of the rounds before, so that a run that goes on after a stop gives the same. A graph
    is only made anew when other nodes were chosen. The history says how many nodes were handed out.

    Parameters
    ----------
    shape : widths of the global model
    """

    statistics = ("embeddings",)
    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape, **options: Any) -> None:
        super().__init__(**options)
        self.config, self.shape = config, shape
        self.graphs: dict[int, Condensed] = {}  # of the clients that have uploaded theirs, as their embeddings
        self.embeddings: dict[int, Tensor] = {}
        self.groups: dict[int, int] = {}
        self.seconds, self.nodes = 0.0, 0  # of choosing and rebuilding in this round; handed out in it
        self._made: dict[int, tuple[str, Tensor]] = {}  # client -> the nodes that were chosen last, their graph

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Group the clients that have uploaded, then ask those of the round to train."""
        begin, self.nodes = time.perf_counter(), 0
        if not self.config.fedc4.released_code:
            collected = {client: self.collected(client) for client in self.holders()}
            self.graphs = {client: graph_in(own) for client, own in collected.items()}
            self.embeddings = {client: own["embeddings"] for client, own in collected.items()}
            self.groups = groups_of(self.embeddings, self.config.fedc4.groups)
        self.seconds = time.perf_counter() - begin
        return super().configure_train(server_round, arrays, config, grid)

    def given(self, client: int) -> Mapping[str, Tensor]:
        """Return "features" and "labels" of others' rows and the "adjacency" of own and given ones.

        Nothing before the client's first upload, nor to a client without condensed nodes.
        """
        if client not in self.groups:
            return {}
        begin = time.perf_counter()
        chosen = chosen_for(client, self.embeddings, self.groups, self.config.fedc4.threshold)
        whole = exchanged(self.graphs[client], self.graphs, chosen)
        adjacency = self._adjacency(client, chosen, whole)
        own = len(self.graphs[client].labels)
        self.nodes += len(whole.labels) - own
        self.seconds += time.perf_counter() - begin
        return {"features": whole.features[own:], "labels": whole.labels[own:], "adjacency": adjacency}

    def fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Judge S where it is there, and whether there is an embedding of each of its rows."""
        if GRAPH[0] in found:
            if fault := fault_of_graph(found, self.shape.text_dim, self.shape.classes):
                return fault
            rows = len(found["labels"])
        else:
            rows = len(self.collected(client)["labels"])
        return fault_of_shapes(found, {"embeddings": (torch.float32, (rows, self.shape.hidden_dim))})

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return the mean; its metrics also say the server's seconds, "rebuild", and the nodes that were given."""
        told = {"seconds-rebuild": self.seconds, "nodes-given": self.nodes}
        return [messages.with_metrics(mean, told) for mean in super().merge(uploads, start, bound, round_)]

    def _adjacency(self, client: int, chosen: Chosen, whole: Condensed) -> Tensor:
        """Return the graph over own and chosen rows, the one of the last round where the same were chosen."""
        settings = self.config.fedc4
        if not settings.rebuild:
            return whole.adjacency
        name = str({other: rows.tolist() for other, rows in chosen.items()})
        last, made = self._made.get(client, ("", whole.adjacency))
        if last != name:
            weights = settings.similarity_weight, settings.sparsity_weight
            made = rebuilt(whole.features, *weights, settings.rebuild_steps)
            self._made[client] = name, made
        return made
