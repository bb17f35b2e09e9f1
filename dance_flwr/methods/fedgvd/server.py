"""The server side of FedGVD (Dai et al. 2025): a network on all condensed graphs tells clients of
each other.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from dance_flwr.methods import get_spec
from dance_flwr.methods.condensation.uploads import GRAPH, graph_fault, graph_in
from dance_flwr.methods.fedgvd.config import FedGvdConfig
from dance_flwr.methods.fedgvd.coordinators import teach, united
from dance_flwr.methods.personalised import Personalised
from dance_flwr.methods.server_side import Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import seeded

_NETWORK, _TAUGHT = "global/", "taught/"  # names in `memory`


class FedGvdServer(StatefulServerSide, Personalised):
    """Z_g <- f_g(S_1 + .. + S_M + coordinators), f_g trained a few steps on in every round; models
    stay with clients.

    The network goes on from round to round and, like what it last said, is part of the checkpoint.
    """

    once = GRAPH

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return the network's logits of the client's own condensed rows, from round 2 on."""
        taught = self.memory.get(f"{_TAUGHT}{client}")
        return {} if taught is None or not len(taught) else {"logits": torch.from_numpy(taught)}

    def upload_fault(self, client: int, found: Mapping[str, Tensor]) -> str:
        """Return what keeps an upload from being a condensed graph."""
        return graph_fault(found, self.shape.text_dim, self.shape.classes) if found else ""

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the clients' models as they are; "teach" are the server's seconds."""
        merged = super().merge(uploads, start, bound, round_)
        begin = time.perf_counter()
        if self.holders():
            self._teach()
        return replace(merged, seconds={"teach": time.perf_counter() - begin})

    def _teach(self) -> None:
        """Train the network on every graph that is here and take down what it says of it."""
        clients = self.holders()
        graphs = [graph_in(self.collected(client)) for client in clients]
        with seeded(self.config.seed, "global"):
            model = cast(
                PlainModel,
                get_spec(self.config.method).make_client().build(self.shape, self.config),
            )
        kept = {
            name.removeprefix(_NETWORK): array
            for name, array in self.memory.items()
            if name.startswith(_NETWORK)
        }
        if kept:
            model.load_state_dict({name: torch.from_numpy(array) for name, array in kept.items()})
        taught = teach(
            model,
            united(graphs),
            FedGvdConfig.of(self.config).server_epochs,
            FedGvdConfig.of(self.config).server_rate,
        )
        self.memory |= {
            _NETWORK + name: tensor.numpy().copy() for name, tensor in model.state_dict().items()
        }
        self.memory |= {
            f"{_TAUGHT}{client}": rows.numpy() for client, rows in zip(clients, taught, strict=True)
        }
