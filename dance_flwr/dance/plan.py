"""What a refresh decides for the rounds until the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.queue import Queue
from dance_flwr.dance.selection import Padded, Selection
from dance_flwr.dance.topology import Edges
from dance_flwr.nn.moving import HOST, moved

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Condensation:
    """What a node condensation decides until the next one: the part of a state that grows with n.

    Attributes
    ----------
    times_selected : [n] int64, number of cores that contained each node before it
    difficulty : [n] float32 u_v of the model that condensed
    queue : the order in which nodes enter cores
    """

    times_selected: Int64[Tensor, "n"]
    difficulty: Float[Tensor, "n"]
    queue: Queue

    def times_after(self, turns: int) -> Int64[Tensor, "n"]:
        """Return `times_selected` after so many rounds; [n] int64."""
        # A copy, as a condensation stays what its file says.
        times = self.times_selected.clone()
        times[self.queue.nodes] += self.queue.times(turns)
        return times

    def arrays(self) -> Arrays:
        """Return the arrays that a file stores."""
        tensors = {
            "times_selected": self.times_selected,
            "difficulty": self.difficulty,
            "queue_nodes": self.queue.nodes,
            "queue_ptr": self.queue.ptr,
            "queue_quotas": self.queue.quotas,
        }
        if self.queue.mass is not None:
            tensors["queue_mass"] = self.queue.mass
        return {name: tensor.numpy() for name, tensor in moved(tensors, HOST).items()}

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the object from its `arrays`, as tensors; a KeyError names a missing one."""
        nodes, ptr, quotas = (tensors[f"queue_{name}"] for name in ("nodes", "ptr", "quotas"))
        queue = Queue(nodes, ptr, quotas, tensors.get("queue_mass"))
        return cls(tensors["times_selected"], tensors["difficulty"], queue)


@dataclass(frozen=True)
class Plan:
    """Evidence and edges of T successive cores of a `Queue`.

    Attributes
    ----------
    first : turn of the first of these cores
    cores : [T, K] int64, the nodes of each core, ascending
    selection : of the distinct nodes of all cores, ascending
    edges : of the condensed graph of each core
    mass : [T, K] number of nodes that each node of a core stands for; None = all count the same
    """

    first: int
    cores: Int64[Tensor, "T K"]
    selection: Selection
    edges: tuple[Edges, ...]
    mass: Float[Tensor, "T K"] | None = None

    def covers(self, turn: int) -> bool:
        """Whether the core of this turn is one of them."""
        return 0 <= turn - self.first < len(self.edges)

    def rounded(self) -> "Plan":
        """Return the plan without candidates that were rejected.

        c_v of several cores is in half precision.
        """
        frozen = self.selection.frozen()
        if len(self.edges) > 1:
            # Why (decision 16): c_v of up to 4,096 nodes is most of what a round reads.
            frozen = replace(frozen, context=frozen.context.half())
        return replace(self, selection=frozen)

    def batch(self, turn: int) -> tuple[Selection, Edges]:
        """Return what the round of this turn trains on: evidence of its core, and edges."""
        edges = self.edges[turn - self.first]
        if len(self.edges) == 1:
            return self.selection, edges
        # Nodes of the selection are ascending and include every core.
        rows = torch.searchsorted(self.selection.nodes, self.cores[turn - self.first])
        return self.selection.take(rows), edges

    def padded(self, turn: int) -> Padded:
        """Return the evidence of the core of this turn as dense rows."""
        selection = self.selection
        # Why all cores at once: of a plan that is in memory they are padded once. What was rejected
        # may be many times as wide.
        if len(self.edges) == 1 or not selection.is_frozen:
            return self.batch(turn)[0].padded
        return selection.padded.take(
            torch.searchsorted(selection.nodes, self.cores[turn - self.first])
        )

    def arrays(self) -> Arrays:
        """Return the arrays that a file stores."""
        # Concatenated, so that names in the file (decision 26) do not depend on the number of
        # cores.
        rows, cols, weights = (torch.cat(part) for part in zip(*self.edges, strict=True))
        tensors = {"cores": self.cores, "rows": rows, "cols": cols, "weights": weights}
        sizes = np.array([len(weights) for _, _, weights in self.edges])
        if self.mass is not None:
            tensors["mass"] = self.mass
        arrays = {name: tensor.numpy() for name, tensor in moved(tensors, HOST).items()}
        return arrays | {"first": np.array(self.first), "sizes": sizes} | self.selection.arrays()

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the object from its `arrays`, as tensors; a KeyError names a missing one."""
        sizes = tensors["sizes"].tolist()
        parts = (torch.split(tensors[name], sizes) for name in ("rows", "cols", "weights"))
        selection, edges = Selection.from_arrays(tensors), tuple(zip(*parts, strict=True))
        return cls(int(tensors["first"]), tensors["cores"], selection, edges, tensors.get("mass"))
