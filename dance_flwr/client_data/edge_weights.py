"""Weights of edges that come with a client's data, as gates in [0, 1]."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.ragged import Ragged


@dataclass(frozen=True)
class EdgeGates:
    """The weight of every edge of a client, divided by the largest one of the client.

    Attributes
    ----------
    codes : [E] int64, row * n + neighbour, ascending
    gates : [E] float32 in [0, 1]
    """

    codes: Int64[Tensor, "E"]
    gates: Float[Tensor, "E"]

    @classmethod
    def of(cls, rows: Ragged, weights: Float[Tensor, "E"]) -> "EdgeGates | None":
        """Return the gates of a client's edges; None where all weights are equal.

        Parameters
        ----------
        rows : n rows of neighbours, ascending
        weights : >= 0, in the order of `rows`
        """
        # Why the client's largest (decision 27): a scale over all clients would have to leave them.
        # An edge counts at most as much as a node's loop, and a gate of `edge-gates`, which
        # multiplies it, has the same range.
        largest = weights.max() if len(weights) else weights.new_ones(())
        # Equal ones divided by themselves are 1, which is what no weights are; 0 everywhere would
        # divide by 0, and leaves no edge.
        if len(weights) == 0 or (largest > 0 and bool((weights == largest).all())):
            return None
        gates = weights / largest if largest > 0 else weights
        return cls(rows.rows() * rows.num_rows + rows.index, gates)

    def at(self, rows: Ragged) -> Float[Tensor, "F"]:
        """Return the gates of the edges of other neighbour lists of the same nodes; [F].

        An edge that the client's data lack, which a method added, has 1.
        """
        codes = rows.rows() * rows.num_rows + rows.index
        place = torch.searchsorted(self.codes, codes).clamp(max=len(self.codes) - 1)
        return torch.where(self.codes[place] == codes, self.gates[place], 1.0)
