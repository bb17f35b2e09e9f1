"""The server side of FedGM (Zhang et al. 2025): refines the union of the clients' condensed graphs,
trains on it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods import get_spec
from dance_flwr.methods.condensation.config import CondenseConfig
from dance_flwr.methods.condensation.matching import Network
from dance_flwr.methods.condensation.uploads import (
    GRAPH,
    graph_fault,
    graph_in,
)
from dance_flwr.methods.fedgm.config import FedGmConfig
from dance_flwr.methods.fedgm.union import Block, pooled, refine, train_on_union
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.methods.upload_checks import ExpectedShapes, shapes_fault
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.seeding import generator, seeded

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # torch's names of Adam's state


class FedGmServer(StatefulServerSide):
    """X' moves by one step of Adam per round; every `train-every` rounds a network trained anew on
    S is deployed.

    omega is that network, and clients only validate it: theta, at which they take gradients, goes
    beside it. The loss of a round is the matching loss. There is no average over rounds, whatever
    `ema-decay` says: networks that each start anew have no mean that is one.

    Deviations from the public code: clients validate, where its server chooses by the whole graph's
    validation nodes; training every 10th round and not in each, of 50 steps, not 600.

    Attributes
    ----------
    memory : beside the uploads X' as it is now and Adam's state, "refined/3", "exp_avg/3", ..., of
        each client
    """

    statistics = ("weights", "biases", "counts")
    once = GRAPH
    averages_rounds = False

    def __init__(self, config: RunConfig, shape: ModelShape) -> None:
        super().__init__(config, shape)
        self._round = 0

    def before_round(self, round_: int, channel: Channel) -> None:
        """Take note of the round: its theta is drawn anew, the same for all clients."""
        self._round = round_

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return theta."""
        network = self._network(self._round)
        return {"weight": network.weight, "bias": network.bias}

    def upload_fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Judge the gradients, and S where it is there."""
        dim, classes = self.shape.text_dim, self.shape.classes
        shapes: ExpectedShapes = {
            "weights": (torch.float32, (classes, dim, classes)),
            "biases": (torch.float32, (classes, classes)),
            "counts": (torch.float32, (classes,)),
        }
        if fault := shapes_fault(found, shapes):
            return fault
        if bool((found["counts"] < 0).any()):
            return "expected counts of at least 0, found others"
        return graph_fault(found, dim, classes) if GRAPH[0] in found else ""

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the deployed network; "refine" and "deploy" are seconds of the server."""
        self.keep(uploads)
        begin = time.perf_counter()
        blocks, loss = self._refined([upload.statistics for upload in uploads], round_)
        middle = time.perf_counter()
        state = self._deployed(blocks, start, round_)
        seconds = {"refine": middle - begin, "deploy": time.perf_counter() - middle}
        return Merged(state, seconds, loss=loss)

    def _network(self, round_: int) -> Network:
        draw = generator(self.config.seed, "theta", round_=round_)
        return Network.drawn(self.shape.text_dim, self.shape.classes, draw, torch.device("cpu"))

    def _refined(
        self, found: Sequence[Mapping[str, Tensor]], round_: int
    ) -> tuple[list[Block], float]:
        """Move X' of all clients whose S is here towards this round's gradients; return their
        blocks and the loss.
        """
        counts = torch.stack([own["counts"] for own in found])
        wanted = pooled([(own["weights"], own["biases"]) for own in found], counts)
        clients = self.holders()
        blocks = [self._block(client) for client in clients]
        settings = FedGmConfig.of(self.config)
        blocks, loss = refine(
            blocks,
            self._network(round_),
            wanted,
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
        own = {
            name: torch.tensor(self.memory[f"{name}/{client}"]) for name in ("refined", *_MOMENTS)
        }
        return Block(replace(graph, features=own.pop("refined")), own)

    def _deployed(self, blocks: Sequence[Block], start: State, round_: int) -> State:
        """Return the parameters of a network trained on S, in rounds where that is not due those it
        has.
        """
        settings = FedGmConfig.of(self.config)
        if (round_ - 1) % settings.train_every and round_ != self.config.rounds:
            return start
        with seeded(self.config.seed, "deploy", round_=round_):
            model = cast(
                PlainModel,
                get_spec(self.config.method).make_client().build(self.shape, self.config),
            )
            train_on_union(
                model, [block.graph for block in blocks], settings.train_steps, self.config
            )
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
