"""The server side of FedGM (Zhang et al. 2025): refines the union of the clients' condensed graphs, trains on it."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from dance_flwr import messages
from dance_flwr.condense.matching import Network
from dance_flwr.condense.union import Block, pooled, refine, train_on_union
from dance_flwr.condense.uploads import GRAPH, Expected, fault_of_graph, fault_of_shapes, graph_in
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape, PlainModel
from dance_flwr.methods import get_method
from dance_flwr.seeding import generator, seeded
from dance_flwr.strategies.averaging import ModelAverage, State, Upload
from dance_flwr.strategies.collecting import Collecting

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # torch's names of Adam's state


class FedGm(Collecting):
    """X' moves by one step of Adam per round; every `train-every` rounds a network trained anew on S is deployed.

    omega is that network, and clients only validate it: theta, at which they take gradients, goes beside it. The loss
    of a round is the matching loss. There is no average over rounds, whatever `ema-decay` says: networks that each
    start anew have no mean that is one.

    Deviations from the public code: clients validate, where its server chooses by the whole graph's validation nodes;
    training every 10th round and not in each, of 50 steps, not 600.

    Parameters
    ----------
    shape : widths of the deployed network

    Attributes
    ----------
    memory : beside the uploads X' as it is now and Adam's state, "refined/3", "exp_avg/3", ..., of each client
    """

    statistics = ("weights", "biases", "counts")
    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape, **options: Any) -> None:
        super().__init__(**options)
        self.config, self.shape = config, shape
        self.round = 0
        self.average = ModelAverage(0.0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send a fresh theta, the same to all clients of the round."""
        self.round = server_round
        return super().configure_train(server_round, arrays, config, grid)

    def given(self, client: int) -> Mapping[str, Tensor]:
        """Return theta."""
        network = self._network(self.round)
        return {"weight": network.weight, "bias": network.bias}

    def fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Judge the gradients, and S where it is there."""
        dim, classes = self.shape.text_dim, self.shape.classes
        shapes: Expected = {
            "weights": (torch.float32, (classes, dim, classes)),
            "biases": (torch.float32, (classes, classes)),
            "counts": (torch.float32, (classes,)),
        }
        if fault := fault_of_shapes(found, shapes):
            return fault
        if bool((found["counts"] < 0).any()):
            return "expected counts of at least 0, found others"
        return fault_of_graph(found, dim, classes) if GRAPH[0] in found else ""

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return one reply with the network that is deployed; "refine" and "deploy" are seconds of the server."""
        merged = super().merge(uploads, start, bound, round_)
        if not merged:
            return []
        begin = time.perf_counter()
        found = [messages.statistics_of(reply) for reply, _ in uploads]
        blocks, loss = self._refined(found, round_)
        middle = time.perf_counter()
        state = self._deployed(blocks, start, round_)
        seconds = {"seconds-refine": middle - begin, "seconds-deploy": time.perf_counter() - middle}
        return [messages.with_metrics(messages.with_model(merged[0], state), {"loss": loss, **seconds})]

    def _network(self, round_: int) -> Network:
        draw = generator(self.config.seed, "theta", round_=round_)
        return Network.drawn(self.shape.text_dim, self.shape.classes, draw, torch.device("cpu"))

    def _refined(self, found: Sequence[Mapping[str, Tensor]], round_: int) -> tuple[list[Block], float]:
        """Move X' of all clients whose S is here towards this round's gradients; return their blocks and the loss."""
        counts = torch.stack([own["counts"] for own in found])
        wanted = pooled([(own["weights"], own["biases"]) for own in found], counts)
        clients = self.holders()
        blocks = [self._block(client) for client in clients]
        settings = self.config.fedgm
        blocks, loss = refine(
            blocks,
            self._network(round_),
            wanted,
            counts.sum(0) > 0,
            settings.feature_rate,
            self.config.condense.distance,
        )
        for client, block in zip(clients, blocks, strict=True):
            state = {"refined": block.graph.features, **block.moments}
            self.memory |= {f"{name}/{client}": tensor.numpy().copy() for name, tensor in state.items()}
        return blocks, loss

    def _block(self, client: int) -> Block:
        graph = graph_in(self.collected(client))
        if f"refined/{client}" not in self.memory:
            return Block(graph)
        own = {name: torch.tensor(self.memory[f"{name}/{client}"]) for name in ("refined", *_MOMENTS)}
        return Block(replace(graph, features=own.pop("refined")), own)

    def _deployed(self, blocks: Sequence[Block], start: State, round_: int) -> State:
        """Return the parameters of a network trained on S, in rounds where that is not due those it has."""
        settings = self.config.fedgm
        if (round_ - 1) % settings.train_every and round_ != self.config.rounds:
            return start
        with seeded(self.config.seed, "deploy", round_=round_):
            model = cast(PlainModel, get_method(self.config.method).build(self.shape, self.config))
            train_on_union(model, [block.graph for block in blocks], settings.train_steps, self.config)
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
