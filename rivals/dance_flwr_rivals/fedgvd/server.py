"""The server side of FedGVD: a network trained on all condensed graphs teaches the clients.

Dai et al., CIKM 2025. The union of the clients' graphs is disjoint. One coordinator per client,
with features 1, is linked to all nodes of that client and to all other coordinators, so that two
hops carry information from each client to the coordinators of all others. Coordinators have no
label and are in no loss. As every backbone here layer-normalises its input, features of ones become
zeros: a coordinator's representation comes from its neighbours alone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.methods.personal_parts import Personalised
from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Merged, State, Upload, entries_under
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import seeded
from dance_flwr_rivals.condensation.adjacency import union_edges
from dance_flwr_rivals.condensation.graphs import GRAPH, Condensed, graph_fault, graph_in
from dance_flwr_rivals.fedgvd import FedGvdConfig
from dance_flwr_rivals.stateful import StatefulServerSide

_NETWORK, _LOGITS = "global/", "logits/"  # prefixes of names in `memory`


@dataclass(frozen=True)
class Union:
    """The connected union: condensed nodes of clients 0, 1, .., M - 1, then M coordinators.

    Attributes
    ----------
    features : [N + M, d], N = sum_k K_k
    labels : [N + M] int64, -1 for coordinators
    sizes : K_k of each client
    rows, cols, weights : [E], every edge in both directions
    """

    features: Tensor
    labels: Tensor
    sizes: tuple[int, ...]
    rows: Tensor
    cols: Tensor
    weights: Tensor


def unite(graphs: Sequence[Condensed]) -> Union:
    """Return the union of at least one condensed graph; an empty graph has a coordinator too."""
    sizes = tuple(len(graph.labels) for graph in graphs)
    nodes, clients = sum(sizes), len(sizes)
    graph_rows, graph_cols, weights = union_edges([graph.adjacency for graph in graphs])
    # Spokes join a coordinator with its client's nodes, the ring joins all coordinators: two hops
    # reach the coordinators of all other clients.
    owners = torch.repeat_interleave(torch.arange(clients), torch.tensor(sizes))
    spokes = torch.stack([torch.arange(nodes), nodes + owners])
    ring = nodes + torch.nonzero(~torch.eye(clients, dtype=torch.bool)).T
    rows, cols = torch.cat(
        [torch.stack([graph_rows, graph_cols]), spokes, spokes.flip(0), ring], dim=1
    )
    return Union(
        features=torch.cat(
            [*(graph.features for graph in graphs), torch.ones(clients, graphs[0].features.size(1))]
        ),
        # -1 keeps coordinators out of every loss. The public code drops the last 30 rows instead,
        # whatever the number of clients.
        labels=torch.cat([*(graph.labels for graph in graphs), torch.full((clients,), -1)]),
        sizes=sizes,
        rows=rows,
        cols=cols,
        weights=torch.cat([weights, torch.ones(len(rows) - len(weights))]),
    )


def teach(model: PlainModel, union: Union, steps: int, rate: float) -> list[Tensor]:
    """Train `model` in place on the labelled nodes of the union.

    Full-batch cross-entropy with a fresh Adam and without dropout, as in the public code.

    Returns
    -------
    the logits [K_k, C] of each client's rows afterwards
    """
    known, edges = union.labels >= 0, (union.rows, union.cols, union.weights)
    graph = operator(model.backbone.operator, *edges, len(known))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    # Without dropout, as in the public code.
    model.eval()
    for _ in range(steps if bool(known.any()) else 0):
        optimizer.zero_grad()
        logits = model.graph_logits(model.backbone(union.features, graph))
        F.cross_entropy(logits[known], union.labels[known]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        logits = model.graph_logits(model.backbone(union.features, graph))
    # Rows by client: coordinators come last and are nobody's.
    return list(logits[: sum(union.sizes)].split(union.sizes))  # type: ignore[no-untyped-call]


class FedGvdServer(StatefulServerSide, Personalised):
    """Z_g <- f_g(S_1 + .. + S_M + coordinators); the clients' models are not merged.

    f_g is trained for some more steps in every round. Its parameters and last logits are part of
    the checkpoint.
    """

    once = GRAPH

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return the network's logits of the client's own condensed rows, from round 2 on."""
        logits = self.memory.get(f"{_LOGITS}{client}")
        # Nothing in round 1, and nothing for a client without condensed nodes.
        return {} if logits is None or not len(logits) else {"logits": torch.from_numpy(logits)}

    def upload_fault(self, client: int, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault of the uploaded S; "" where none was uploaded."""
        if not statistics:
            return ""
        return graph_fault(statistics, self.shape.text_dim, self.shape.classes)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the clients' models unchanged; the server's seconds are "teach"."""
        merged = super().merge(uploads, start, bound, round_)
        begin = time.perf_counter()
        if self.holders():
            self._teach()
        return replace(merged, seconds={"teach": time.perf_counter() - begin})

    def _teach(self) -> None:
        clients, settings = self.holders(), FedGvdConfig.of(self.config)
        graphs = [graph_in(self.collected(client)) for client in clients]
        # One initial network per run; the checkpoint has what it has learnt since.
        with seeded(self.config.seed, "global"):
            model = plain_model(self.shape, self.config)
        if last := entries_under(self.memory, _NETWORK):
            model.load_state_dict({name: torch.from_numpy(array) for name, array in last.items()})
        logits = teach(model, unite(graphs), settings.server_epochs, settings.server_rate)
        self.memory |= {
            _NETWORK + name: tensor.numpy().copy() for name, tensor in model.state_dict().items()
        }
        self.memory |= {
            f"{_LOGITS}{client}": rows.numpy() for client, rows in zip(clients, logits, strict=True)
        }
