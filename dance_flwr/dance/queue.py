"""The order in which nodes enter cores."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.ragged import Ragged, ptr_of_sizes


@dataclass(frozen=True)
class Queue:
    """The order in which nodes enter cores until the next condensation.

    Core t takes the next K_c nodes of every class c, cyclically, so that successive cores cover the
    class; O(K), whatever n is. A part of K_c nodes gives the same ones every time.

    Attributes
    ----------
    nodes : [m] int64, class by class, each in the order of selection
    ptr : [C + 1] int64, the part of each class
    quotas : [C] int64, K_c, at most the size of the part
    mass : [m] number of nodes of its class that each node stands for in the core that it enters
        first, at least 1; None = all count the same

    Examples
    --------
    >>> queue = Queue(torch.tensor([4, 2, 9]), torch.tensor([0, 3]), torch.tensor([2]))
    >>> [queue.core(turn).tolist() for turn in range(3)]
    [[2, 4], [4, 9], [2, 9]]
    """

    nodes: Int64[Tensor, "m"]
    ptr: Int64[Tensor, "p"]
    quotas: Int64[Tensor, "C"]
    mass: Float[Tensor, "m"] | None = None

    @classmethod
    def of_one_class(cls, nodes: Int64[Tensor, "m"], budget: int) -> "Queue":
        """Return these nodes in their order, `budget` a core."""
        sizes = torch.tensor([nodes.numel()], device=nodes.device)
        return cls(nodes, ptr_of_sizes(sizes), sizes.clamp(max=budget))

    @cached_property
    def moves(self) -> bool:
        """Whether successive cores differ: a part has more nodes than a core takes of it."""
        return bool((self.ptr.diff() > self.quotas).any())

    def core(self, turn: int) -> Int64[Tensor, "K"]:
        """Return core `turn`, from 0: [K] int64, ascending."""
        return self.cores(turn, 1)[0]

    def cores(self, first: int, count: int) -> Int64[Tensor, "T K"]:
        """Return `count` cores from turn `first` on: [T, K] int64, ascending rows."""
        sizes = self.ptr.diff()
        owner = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), self.quotas)
        start = self.quotas.cumsum(0) - self.quotas
        rank = torch.arange(len(owner), device=sizes.device) - start[owner]
        turns = torch.arange(first, first + count, device=sizes.device)[:, None]
        offset = (turns * self.quotas[owner] + rank) % sizes[owner]
        # Ascending, as a plan finds the nodes of a core by bisection.
        return self.nodes[self.ptr[:-1][owner] + offset].sort(dim=1).values

    def times(self, turns: int) -> Int64[Tensor, "m"]:
        """Return how often each node of the queue was in the first `turns` cores; [m] int64."""
        sizes = self.ptr.diff()
        owner = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        rank = torch.arange(len(owner), device=sizes.device) - self.ptr[:-1][owner]
        taken = turns * self.quotas[owner]
        return taken // sizes[owner] + (rank < taken % sizes[owner]).long()

    def mass_of(self, nodes: Int64[Tensor, "*s"]) -> Float[Tensor, "*s"] | None:
        """Return the mass of these nodes of the queue; None = all count the same."""
        if self.mass is None:
            return None
        ascending, order = torch.sort(self.nodes)
        return self.mass[order[torch.searchsorted(ascending, nodes)]]


@dataclass(frozen=True)
class Candidates:
    """The nodes that have a class, and how many of each class enter cores.

    Attributes
    ----------
    nodes : C rows, each ascending
    quotas : [C] int64, K_c, nodes of a core
    parts : [C] int64, nodes that take turns, from K_c to the size of the row
    """

    nodes: Ragged
    quotas: Int64[Tensor, "C"]
    parts: Int64[Tensor, "C"]

    def queue(self, rank: Int64[Tensor, "m"], mass: Float[Tensor, "m"] | None = None) -> Queue:
        """Return the queue of the first `parts` nodes of each class, by their rank in it."""
        start = self.nodes.ptr[:-1][self.nodes.rows()]
        order = torch.empty_like(rank)
        order[start + rank] = torch.arange(len(rank), device=rank.device)
        # A row and its part of the queue start at the same place, whatever their order.
        place = torch.arange(len(rank), device=rank.device) - start
        order = order[place < self.parts[self.nodes.rows()]]
        mass = None if mass is None else mass[order]
        return Queue(self.nodes.index[order], ptr_of_sizes(self.parts), self.quotas, mass)
