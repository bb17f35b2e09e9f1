"""Products of all pairs of nodes of a group, from which candidates and their problems are read."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor
from torch.nn import functional

# Why at least so many: BLAS sums products of smaller matrices in another order, and a product must
# not depend on the size of its group.
_FEWEST_ROWS = 16


@dataclass(frozen=True)
class Pairs:
    """G groups of K nodes in all, every node in one of them; 0 where a group has no node.

    Attributes
    ----------
    member : [G, W] int64, the nodes of each group, -1 where padded
    gram, prior : [G, P, P] with P > W, x_i^T x_j and S_ij = clip(<t~_i, t~_j>, 0, 1)
    slot : [K + 1] int32, g P + p for node `member[g, p]`; the last one is that of no node
    """

    member: Int64[Tensor, "G W"]
    gram: Float[Tensor, "G P P"]
    prior: Float[Tensor, "G P P"]
    slot: Int32[Tensor, "K+1"]

    @classmethod
    def of(
        cls,
        features: Float[Tensor, "K d"],
        evidence: Float[Tensor, "K t"],
        member: Int64[Tensor, "G W"],
    ) -> "Pairs":
        """Return the products of these groups, which are padded behind with -1."""
        size, fill = len(features), max(1, _FEWEST_ROWS - member.size(1))
        padded = functional.pad(member, (0, fill), value=-1)
        width, flat = padded.size(1), padded.flatten()
        filled = torch.nonzero(flat >= 0).flatten()
        # Why int32: half the memory traffic of the tables of places that are made of it.
        slot = torch.full((size + 1,), width - 1, dtype=torch.int32, device=flat.device)
        slot[flat[filled]] = filled.int()
        # One row more, of zeros, is that of no node.
        index = flat.masked_fill(flat < 0, size)
        tables = (
            functional.pad(rows, (0, 0, 0, 1)).index_select(0, index)
            for rows in (features, evidence)
        )
        near, text = (table.view(*padded.shape, table.size(1)) for table in tables)
        return cls(member, near @ near.mT, (text @ text.mT).clamp_(0, 1), slot)

    def nearest(self, most: int) -> Int64[Tensor, "K s"]:
        """TopK_most(x_i^T x_j), then TopK_most(S_ij), with j != i in i's group; [K, s].

        -1 where there are fewer. Ties go to the node that comes first in the group.
        """
        slot, (_, width) = self.slot[:-1], self.member.shape
        others = self.member[slot // self.gram.size(1)]
        out = (others < 0) | (others == torch.arange(len(slot), device=slot.device)[:, None])
        near = []
        for table in (self.gram, self.prior):
            scores = table.flatten(0, 1).index_select(0, slot)[:, :width]
            scores = scores.masked_fill(out, float("-inf"))
            top = torch.sort(scores, dim=1, descending=True, stable=True)
            index, value = top.indices[:, :most], top.values[:, :most]
            near.append(others.gather(1, index).masked_fill(value == float("-inf"), -1))
        return torch.cat(near, dim=1)

    def problems(
        self, support: Int64[Tensor, "b s"], columns: Int64[Tensor, "b"]
    ) -> tuple[Float[Tensor, "s s b"], Float[Tensor, "s b"], Float[Tensor, "s b"]]:
        """Return x_j^T x_l, x_j^T x_i and S_ij for candidates j, l of columns i; 0 where padded."""
        width = self.gram.size(1)
        row, column = self.slot * width, self.slot % width
        row, column, own = row[support.T], column[support.T], row[columns]
        pairs, pulls = row[:, None] + column, own + column
        gram = self.gram.flatten().index_select(0, pairs.flatten()).view(pairs.shape)
        target, prior = (
            table.flatten().index_select(0, pulls.flatten()).view(pulls.shape)
            for table in (self.gram, self.prior)
        )
        return gram, target, prior
