"""The server side of FedC4: FedAvg, and for each client condensed nodes of similar clients."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.baselines.condensation.uploads import GRAPH, graph_fault, graph_in
from dance_flwr.baselines.fedc4.config import FedC4Config
from dance_flwr.baselines.fedc4.selectors import (
    Selection,
    append_selected,
    group_clients,
    rebuild_graph,
    select_nodes,
)
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.methods.upload_checks import shapes_fault
from dance_flwr.nn.model import ModelShape


class FedC4Server(StatefulServerSide):
    """omega <- sum_k n_k omega_k / sum_k n_k; client k is sent the output of `selectors`.

    Both depend only on the uploads of earlier rounds, so that a resumed run gives the same result.
    A graph is rebuilt only when the selected nodes have changed. The history counts the nodes that
    were sent.
    """

    statistics = ("embeddings",)
    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        super().__init__(config, shape)
        self._settings = FedC4Config.of(config)
        # Condensed graphs, embeddings and groups of the clients that have uploaded.
        self.graphs: dict[int, Condensed] = {}
        self.embeddings: dict[int, Tensor] = {}
        self.groups: dict[int, int] = {}
        # In this round: seconds of selecting and rebuilding, nodes sent.
        self._seconds, self._nodes = 0.0, 0
        # client -> its last selection, and the graph over it
        self._rebuilt: dict[int, tuple[str, Tensor]] = {}

    def before_round(self, round_: int, channel: Channel) -> None:
        """Group the clients that have uploaded."""
        begin, self._nodes = time.perf_counter(), 0
        if not self._settings.released_code:
            collected = {client: self.collected(client) for client in self.holders()}
            self.graphs = {client: graph_in(upload) for client, upload in collected.items()}
            self.embeddings = {client: upload["embeddings"] for client, upload in collected.items()}
            self.groups = group_clients(self.embeddings, self._settings.groups)
        self._seconds = time.perf_counter() - begin

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return "features" and "labels" of others' rows, and "adjacency" over own and those rows.

        Empty before the client's first upload, and for a client without condensed nodes.
        """
        if client not in self.groups:
            return {}
        begin = time.perf_counter()
        threshold = self._settings.threshold
        selection = select_nodes(client, self.embeddings, self.groups, threshold)
        graph = append_selected(self.graphs[client], self.graphs, selection)
        adjacency = self._adjacency(client, selection, graph)
        own = len(self.graphs[client].labels)
        self._nodes += len(graph.labels) - own
        self._seconds += time.perf_counter() - begin
        return {
            "features": graph.features[own:],
            "labels": graph.labels[own:],
            "adjacency": adjacency,
        }

    def upload_fault(self, client: int, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault of S if it was uploaded, or of its embeddings, one per row of S."""
        if GRAPH[0] in statistics:
            if fault := graph_fault(statistics, self.shape.text_dim, self.shape.classes):
                return fault
            rows = len(statistics["labels"])
        else:
            rows = len(self.collected(client)["labels"])
        shape = (rows, self.shape.hidden_dim)
        return shapes_fault(statistics, {"embeddings": (torch.float32, shape)})

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the mean, the server's seconds ("rebuild") and the number of nodes sent."""
        merged = super().merge(uploads, start, bound, round_)
        return replace(
            merged, seconds={"rebuild": self._seconds}, counts={"nodes-given": self._nodes}
        )

    def _adjacency(self, client: int, selection: Selection, graph: Condensed) -> Tensor:
        """Return the graph over own and selected rows, rebuilt only for another selection."""
        settings = self._settings
        if not settings.rebuild:
            return graph.adjacency
        name = str({other: rows.tolist() for other, rows in selection.items()})
        last, adjacency = self._rebuilt.get(client, ("", graph.adjacency))
        if last != name:
            weights = settings.similarity_weight, settings.sparsity_weight
            adjacency = rebuild_graph(graph.features, *weights, settings.rebuild_steps)
            self._rebuilt[client] = name, adjacency
        return adjacency
