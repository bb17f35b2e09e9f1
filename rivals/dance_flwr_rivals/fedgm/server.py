"""min_X' sum_c (K_c / max K_c) D(grad L_c(S; theta), g_c): FedGM's refinement at the server.

Zhang, Li, Zhu and Hu, "Rethinking Federated Graph Learning: A Data Condensation Perspective", IJCAI
2025. S is the disjoint union of all clients' condensed graphs, and g_c is the gradient at theta,
the network of `condensation.matching`, averaged over all clients' nodes of class c. Only X' moves;
A' stays block diagonal.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.sections import TrainingConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.nn.training import class_weights
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.condensation.adjacency import normalise, union_edges
from dance_flwr_rivals.condensation.config import CondenseConfig
from dance_flwr_rivals.condensation.graphs import (
    GRAPH,
    Condensed,
    ExpectedShapes,
    graph_fault,
    graph_in,
    layer_normalise,
    shapes_fault,
    spread,
)
from dance_flwr_rivals.condensation.matching import Network, matching_loss
from dance_flwr_rivals.fedgm import FedGmConfig
from dance_flwr_rivals.stateful import StatefulServerSide

AdamState = dict[str, Tensor]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # torch's names of Adam's state


@dataclass
class Block:
    """One client's part of the union, and Adam's state for its features.

    Attributes
    ----------
    moments : Adam's state under torch's own names; empty before the first step
    """

    graph: Condensed
    moments: AdamState = field(default_factory=dict)


def pool_gradients(
    gradients: Sequence[tuple[Tensor, Tensor]], counts: Tensor
) -> tuple[Tensor, Tensor]:
    """g_c = sum_k (m_kc / sum_j m_jc) g_kc, 0 where no client has a node of c.

    If g_kc is the mean over m_kc nodes, g_c is the mean over all of them; ([C, d, C], [C, C]).

    Parameters
    ----------
    gradients : M results of `matching.class_gradients`
    counts : m, [M, C] >= 0
    """
    # A class that no client has divides 0 by the smallest float, not by 0.
    shares = counts / counts.sum(0).clamp(min=torch.finfo(counts.dtype).tiny)
    weights, biases = (torch.stack(part) for part in zip(*gradients, strict=True))
    return torch.einsum("kc,kcdj->cdj", shares, weights), torch.einsum("kc,kcj->cj", shares, biases)


def refine(
    blocks: Sequence[Block],
    network: Network,
    target: tuple[Tensor, Tensor],
    present: Tensor,
    rate: float,
    kind: str,
) -> tuple[list[Block], float]:
    """Move X' by one Adam step; return the new blocks and the loss before the step.

    Rows of a class without a gradient in this round are left out, as they would be matched with
    zero.

    Parameters
    ----------
    target : g, as `pool_gradients` returns it
    present : [C] bool, classes that have a gradient
    rate : Adam learning rate
    kind : name in `DISTANCES`
    """
    # Step 1: the rows of every client as leaves of one graph of operations.
    free = [block.graph.features.detach().clone().requires_grad_() for block in blocks]
    labels = torch.cat([block.graph.labels for block in blocks])
    rows = torch.sort(labels, stable=True).indices
    # A class without a gradient would be matched with zero.
    rows = rows[present[labels[rows]]]
    if not rows.numel():
        return list(blocks), 0.0
    optimizer = torch.optim.Adam(free, lr=rate)
    for features, block in zip(free, blocks, strict=True):
        # Adam's moments by client: one that joins late starts with its own, and leaves the others'
        # as they are.
        optimizer.state[features] = {name: tensor.clone() for name, tensor in block.moments.items()}
    # Blocks share no edge, so that each is propagated by itself.
    hidden = torch.cat(
        [
            spread(layer_normalise(x), normalise(block.graph.adjacency))[-1]
            for x, block in zip(free, blocks, strict=True)
        ]
    )
    # Step 2: match the pooled gradients; only X' moves, A' stays block diagonal.
    loss = matching_loss(target, network, (hidden[rows], labels[rows]), kind)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    refined = [
        Block(
            Condensed(block.graph.labels, x.detach(), block.graph.adjacency),
            dict(optimizer.state[x]),
        )
        for x, block in zip(free, blocks, strict=True)
    ]
    return refined, float(loss.detach())


def train_on_union(
    model: PlainModel, graphs: Sequence[Condensed], steps: int, config: TrainingConfig
) -> float:
    """Minimise the mean cross-entropy of all rows of the union, in place; return the last loss.

    Full batches, Adam at `learning-rate` with `weight-decay`, a tenth of the rate in the second
    half. Draws from torch's global generator (dropout). Without rows the model is not changed.
    """
    labels = torch.cat([graph.labels for graph in graphs]) if graphs else torch.empty(0)
    if not labels.numel():
        return 0.0
    features = torch.cat([graph.features for graph in graphs])
    edges = union_edges([graph.adjacency for graph in graphs])
    graph = operator(model.backbone.operator, *edges, len(labels))
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=(steps + 1) // 2)
    weights = class_weights(labels, model.head_graph.out_features, config)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model.graph_logits(model.backbone(features, graph)), labels, weights)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return float(loss.detach())


class FedGmServer(StatefulServerSide):
    """Moves X' by one Adam step per round; every `train-every` rounds trains a new network on S.

    That network is omega, and clients only validate it: theta, at which they take gradients, is
    sent beside it. The loss of a round is the matching loss. `ema-decay` does not apply: the mean
    of networks with different initial weights is not a network.

    Attributes
    ----------
    memory : beside the uploads, the current X' and Adam's state of each client: "refined/3",
        "exp_avg/3", ..
    """

    statistics = ("weights", "biases", "counts")
    once = GRAPH
    averages_rounds = False

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        super().__init__(config, shape)
        self._round = 0

    def before_round(self, round_: int, channel: Channel) -> None:
        """Remember the round, which determines its theta, the same for all clients."""
        # A payload is made without the number of its round.
        self._round = round_

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return theta."""
        network = self._network(self._round)
        return {"weight": network.weight, "bias": network.bias}

    def upload_fault(self, client: int, statistics: Mapping[str, Tensor]) -> str:
        """Return a fault of the gradients, or of S if it was uploaded."""
        dim, classes = self.shape.text_dim, self.shape.classes
        shapes: ExpectedShapes = {
            "weights": (torch.float32, (classes, dim, classes)),
            "biases": (torch.float32, (classes, classes)),
            "counts": (torch.float32, (classes,)),
        }
        if fault := shapes_fault(statistics, shapes):
            return fault
        if bool((statistics["counts"] < 0).any()):
            return "expected counts of at least 0, found negative ones"
        return graph_fault(statistics, dim, classes) if GRAPH[0] in statistics else ""

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the deployed network; the server's seconds are "refine" and "deploy"."""
        self.store(uploads)
        begin = time.perf_counter()
        blocks, loss = self._refine([upload.statistics for upload in uploads], round_)
        middle = time.perf_counter()
        state = self._deploy(blocks, start, round_)
        seconds = {"refine": middle - begin, "deploy": time.perf_counter() - middle}
        return Merged(state, seconds, loss=loss)

    def _network(self, round_: int) -> Network:
        # By the round alone: clients and refinement use the same theta, and a resumed run draws it
        # again.
        draw = generator(self.config.seed, "theta", round_=round_)
        return Network.draw(self.shape.text_dim, self.shape.classes, draw, torch.device("cpu"))

    def _refine(
        self, uploads: Sequence[Mapping[str, Tensor]], round_: int
    ) -> tuple[list[Block], float]:
        counts = torch.stack([upload["counts"] for upload in uploads])
        target = pool_gradients(
            [(upload["weights"], upload["biases"]) for upload in uploads], counts
        )
        clients = self.holders()
        blocks = [self._block(client) for client in clients]
        settings = FedGmConfig.of(self.config)
        blocks, loss = refine(
            blocks,
            self._network(round_),
            target,
            counts.sum(0) > 0,
            settings.feature_rate,
            CondenseConfig.of(self.config).distance,
        )
        for client, block in zip(clients, blocks, strict=True):
            state = {"refined": block.graph.features, **block.moments}
            self.memory |= {
                f"{name}/{client}": tensor.numpy().copy() for name, tensor in state.items()
            }
        return blocks, loss

    def _block(self, client: int) -> Block:
        graph = graph_in(self.collected(client))
        if f"refined/{client}" not in self.memory:
            return Block(graph)
        state = {
            name: torch.tensor(self.memory[f"{name}/{client}"]) for name in ("refined", *_MOMENTS)
        }
        return Block(replace(graph, features=state.pop("refined")), state)

    def _deploy(self, blocks: Sequence[Block], start: State, round_: int) -> State:
        settings = FedGmConfig.of(self.config)
        # In round 1, so that validation has a trained network, and in the last, which is deployed.
        if (round_ - 1) % settings.train_every and round_ != self.config.rounds:
            return start
        with seeded(self.config.seed, "deploy", round_=round_):
            model = plain_model(self.shape, self.config)
            graphs = [block.graph for block in blocks]
            train_on_union(model, graphs, settings.train_steps, self.config)
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
