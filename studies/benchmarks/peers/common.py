"""What the runners of the peers share: exported tensors, settings, a GCN, and a clock.

    python RUNNER.py FOLDER ROUNDS SEED

A runner prints one line of JSON: the accuracy on test nodes in the round of the best validation,
and the median seconds of a round, from the third on.
"""

import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

# Those of every peer, and of dance-flwr with `hidden-dim = 64`.
EPOCHS, RATE, DECAY, WIDTH, DROPOUT = 3, 0.01, 5e-4, 64, 0.5
# In the environment too, as processes of Ray have other arguments.
_GIVEN = os.environ.setdefault("PEER_ARGUMENTS", os.pathsep.join(sys.argv[1:4])).split(os.pathsep)
FOLDER, ROUNDS, SEED = Path(_GIVEN[0]), int(_GIVEN[1]), int(_GIVEN[2])
CLIENTS = len(list(FOLDER.glob("client-*.pt")))

torch.set_num_threads(1)
torch.manual_seed(SEED)


def stub(*names: str) -> None:
    """Let modules be imported that a peer names at its top, and does not call in FedAvg."""
    sys.modules.update({name: MagicMock() for name in names})


@cache
def load(name: str | int) -> dict[str, Any]:
    """Return x, edge_index, y, the masks train, val and test, and classes: of a client or "all"."""
    path = FOLDER / (f"client-{name}.pt" if isinstance(name, int) else f"{name}.pt")
    return torch.load(path, weights_only=True)  # type: ignore[no-any-return]


class Gcn(nn.Module):
    """Two graph convolutions on raw features, as in the tutorials."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(inputs, WIDTH), GCNConv(WIDTH, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return logits; [n, d], [2, e] -> [n, C]."""
        hidden = F.dropout(F.relu(self.first(x, edges)), DROPOUT, self.training)
        return self.second(hidden, edges)  # type: ignore[no-any-return]


def right(logits: Tensor, data: dict[str, Any]) -> Tensor:
    """Return the numbers of right and of all nodes in the validation and the test split; [2, 2]."""
    hits = logits.argmax(1) == data["y"]
    return torch.tensor([[int(hits[data[s]].sum()), int(data[s].sum())] for s in ("val", "test")])


class Clock:
    """Times rounds, and keeps the test accuracy of the round with the best validation."""

    def __init__(self) -> None:
        self._times, self._best = [time.perf_counter()], (-1.0, 0.0)

    def round(self, val: float, test: float) -> None:
        """Note the end of a round."""
        self._times.append(time.perf_counter())
        self._best = max(self._best, (val, test), key=lambda scores: scores[0])

    def counted(self, counts: Tensor) -> None:
        """Note the end of a round by the sum of `right`."""
        self.round(*(counts[:, 0] / counts[:, 1]).tolist())

    def report(self, test: float | None = None) -> None:
        """Print the line of the table, with a test accuracy in the place of the one kept."""
        seconds = [end - start for start, end in zip(self._times, self._times[1:], strict=False)]
        test = self._best[1] if test is None else test
        print(json.dumps({"test": test, "seconds": median(seconds[2:])}), flush=True)
