"""The server side of FedGM: refines the union of the clients' condensed graphs, trains on it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dance_flwr.baselines.condensation.config import CondenseConfig
from dance_flwr.baselines.condensation.matching import Network
from dance_flwr.baselines.condensation.uploads import GRAPH, graph_fault, graph_in
from dance_flwr.baselines.fedgm.config import FedGmConfig
from dance_flwr.baselines.fedgm.union import Block, pool_gradients, refine, train_on_union
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Channel, Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.methods.upload_checks import ExpectedShapes, shapes_fault
from dance_flwr.nn.model import ModelShape
from dance_flwr.seeding import generator, seeded

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # torch's names of Adam's state


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
        draw = generator(self.config.seed, "theta", round_=round_)
        return Network.draw(self.shape.text_dim, self.shape.classes, draw, torch.device("cpu"))

    def _refine(
        self, uploads: Sequence[Mapping[str, Tensor]], round_: int
    ) -> tuple[list[Block], float]:
        """Refine the X' of all stored graphs; return their blocks and the loss."""
        counts = torch.stack([upload["counts"] for upload in uploads])
        target = pool_gradients([(own["weights"], own["biases"]) for own in uploads], counts)
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
        """Return the parameters of a network trained on S; those of before where none is due."""
        settings = FedGmConfig.of(self.config)
        if (round_ - 1) % settings.train_every and round_ != self.config.rounds:
            return start
        with seeded(self.config.seed, "deploy", round_=round_):
            model = plain_model(self.shape, self.config)
            graphs = [block.graph for block in blocks]
            train_on_union(model, graphs, settings.train_steps, self.config)
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
