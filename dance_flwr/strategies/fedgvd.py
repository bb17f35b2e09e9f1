"""The server side of FedGVD (Dai et al. 2025): a network on all condensed graphs tells clients of each other."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from flwr.app import Message
from torch import Tensor

from dance_flwr import messages
from dance_flwr.condense.coordinators import teach, united
from dance_flwr.condense.uploads import GRAPH, fault_of_graph, graph_in
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape, PlainModel
from dance_flwr.methods import get_method
from dance_flwr.seeding import seeded
from dance_flwr.strategies.averaging import State, Upload
from dance_flwr.strategies.collecting import Collecting
from dance_flwr.strategies.personal import Personal

_NETWORK, _TAUGHT = "global/", "taught/"  # names in `memory`


class FedGvd(Collecting, Personal):
    """Z_g <- f_g(S_1 + .. + S_M + coordinators), f_g trained a few steps on in every round; models stay with clients.

    The network goes on from round to round and, like what it last said, is part of the checkpoint.

    Parameters
    ----------
    shape : widths of the network, those of the clients' models
    """

    once = GRAPH

    def __init__(self, config: RunConfig, shape: ModelShape, **options: Any) -> None:
        super().__init__(clients=config.clients, **options)
        self.config, self.shape = config, shape

    def given(self, client: int) -> Mapping[str, Tensor]:
        """Return the network's logits of the client's own condensed rows, from round 2 on."""
        taught = self.memory.get(f"{_TAUGHT}{client}")
        return {} if taught is None or not len(taught) else {"logits": torch.from_numpy(taught)}

    def fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Return what keeps an upload from being a condensed graph."""
        return fault_of_graph(found, self.shape.text_dim, self.shape.classes) if found else ""

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> list[Message]:
        """Return one reply with the clients' models as they are; of its seconds, "teach" are the server's."""
        made = super().merge(uploads, start, bound, round_)
        begin = time.perf_counter()
        if self.holders():
            self._teach()
        return [messages.with_metrics(reply, {"seconds-teach": time.perf_counter() - begin}) for reply in made]

    def _teach(self) -> None:
        """Train the network on every graph that is here and take down what it says of it."""
        clients = self.holders()
        graphs = [graph_in(self.collected(client)) for client in clients]
        with seeded(self.config.seed, "global"):
            model = cast(PlainModel, get_method(self.config.method).build(self.shape, self.config))
        kept = {name.removeprefix(_NETWORK): array for name, array in self.memory.items() if name.startswith(_NETWORK)}
        if kept:
            model.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
        taught = teach(model, united(graphs), self.config.fedgvd.server_epochs, self.config.fedgvd.server_rate)
        self.memory |= {_NETWORK + name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
        self.memory |= {f"{_TAUGHT}{client}": rows.numpy() for client, rows in zip(clients, taught, strict=True)}
