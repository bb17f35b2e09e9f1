"""All chunks that the evidence of a node can come from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.selection import HOPS
from dance_flwr.dance.text import chunks_of_neighbours
from dance_flwr.evidence.balls import among
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import Ragged, concat_rows


@dataclass(frozen=True)
class Pool:
    """Every chunk within two hops of m nodes.

    Attributes
    ----------
    nodes : [m] int64
    chunks : m rows of chunk numbers, those of hop 0 first, then hop 1, then hop 2
    hop : [E] int64, distance of each chunk's owner
    """

    nodes: Tensor
    chunks: Ragged
    hop: Tensor

    @classmethod
    def of(cls, hops: HopLists, table: TextTable, nodes: Tensor) -> "Pool":
        """Gather the pools of these nodes ([m] int64)."""
        around = (hops.zero(nodes), hops.one(nodes), hops.two(nodes))
        parts = [chunks_of_neighbours(ragged, table.chunks_of) for ragged in around]
        marks = [
            Ragged(part.ptr, torch.full_like(part.index, hop))
            for hop, part in zip(HOPS, parts, strict=True)
        ]
        return cls(nodes, concat_rows(parts), concat_rows(marks).index)

    def contains(self, chunks: Ragged) -> Tensor:
        """Whether each chunk of the pool is among the `chunks` of its row; [E] bool."""
        return among(self.chunks.rows(), self.chunks.index, chunks)

    def row_and_hop(self) -> Tensor:
        """Return one number per pair of row and hop, 3 row + hop; [E] int64, ascending."""
        return self.chunks.rows() * len(HOPS) + self.hop
