"""The server side of FedGVD: a network trained on all condensed graphs teaches the clients."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dance_flwr.baselines.condensation.uploads import GRAPH, graph_fault, graph_in
from dance_flwr.baselines.fedgvd.config import FedGvdConfig
from dance_flwr.baselines.fedgvd.coordinators import teach, unite
from dance_flwr.methods.by_client import entries_under
from dance_flwr.methods.personalised import Personalised
from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Merged, State, Upload
from dance_flwr.methods.stateful import StatefulServerSide
from dance_flwr.seeding import seeded

_NETWORK, _LOGITS = "global/", "logits/"  # prefixes of names in `memory`


class FedGvdServer(StatefulServerSide, Personalised):
    """Z_g <- f_g(S_1 + .. + S_M + coordinators); the clients' models are not merged.

    f_g is trained for a few more steps in every round. Its parameters and its last logits are part
    of the checkpoint.
    """

    once = GRAPH

    def payload(self, client: int) -> Mapping[str, Tensor]:
        """Return the network's logits of the client's own condensed rows, from round 2 on."""
        logits = self.memory.get(f"{_LOGITS}{client}")
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
        """Train the network on all stored graphs; store it and its logits."""
        clients, settings = self.holders(), FedGvdConfig.of(self.config)
        graphs = [graph_in(self.collected(client)) for client in clients]
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
