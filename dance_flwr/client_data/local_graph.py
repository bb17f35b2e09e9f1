"""A graph on one client's nodes: neighbour lists, propagation operators, neighbourhoods."""

from functools import cached_property

import torch
from torch import Tensor

from dance_flwr.nn.hops import Hops
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.neighbourhood import Neighbourhood, around, sample_rows
from dance_flwr.nn.propagation import EdgeWeights, edge_weights, operator
from dance_flwr.nn.ragged import Ragged


class LocalGraph:
    """A graph on the client's nodes, for forward passes and node selection.

    Parameters
    ----------
    rows : n rows of neighbours in ascending order, both directions of every edge, no self loops;
        may be memory-mapped
    visible : [n] bool; other nodes have no edges here and never enter a core
    name : tells the graphs of a client apart in its folder
    gates : [E] weights of the edges in the order of `rows`, in [0, 1]; None = all 1
    """

    def __init__(
        self, rows: Ragged, visible: Tensor, name: str = "whole", gates: Tensor | None = None
    ) -> None:
        self.rows = rows
        self.visible = visible
        self.name = name
        self.gates = gates
        self._operators: dict[str, Tensor] = {}
        self._weights: dict[str, EdgeWeights] = {}
        self._hops: dict[int, Hops] = {}

    @cached_property
    def on_host(self) -> "LocalGraph":
        """The graph on the host, where neighbours are sampled; the graph itself if it is there."""
        if self.visible.device == HOST:
            return self
        rows, visible, gates = moved((self.rows, self.visible, self.gates), HOST)
        return LocalGraph(rows, visible, self.name, gates)

    @cached_property
    def num_visible(self) -> int:
        """Number of visible nodes, counted once."""
        return int(self.on_host.visible.sum())

    def hops(self, fan_out: int = 0) -> Hops:
        """Return 1-hop and 2-hop neighbourhoods, at most `fan_out` neighbours a node; 0 = all."""
        if fan_out not in self._hops:
            self._hops[fan_out] = Hops(self.rows, fan_out)
        return self._hops[fan_out]

    def edges(self) -> tuple[Tensor, Tensor]:
        """Return (rows, cols), [E] int64 each: every edge in both directions."""
        return self.rows.rows(), self.rows.index

    def induced_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (rows, cols, weights) of the edges among `nodes` ([K] int64), numbered 0..K-1.

        Reads the neighbours of `nodes` alone.
        """
        sample = sample_rows(self.rows, nodes, 0, None)
        near = self.rows.index[sample.place]
        ascending, order = torch.sort(nodes)
        # A neighbour behind the last node is compared with the last, from which it differs.
        place = torch.searchsorted(ascending, near).clamp(max=max(nodes.numel() - 1, 0))
        inside = ascending[place] == near
        rows, cols = sample.row[inside], order[place[inside]]
        return rows, cols, self._weights_at(sample.place[inside])

    def _weights_at(self, places: Tensor) -> Tensor:
        if self.gates is None:
            return torch.ones(places.numel(), device=places.device)
        return self.gates[places]

    def operator(self, kind: str) -> Tensor:
        """Return the [n, n] propagation operator, computed once per kind."""
        if kind not in self._operators:
            rows, cols = self.edges()
            weights = self._weights_at(torch.arange(cols.numel(), device=cols.device))
            self._operators[kind] = operator(kind, rows, cols, weights, self.visible.numel())
        return self._operators[kind]

    def around(
        self,
        kind: str,
        targets: Tensor,
        steps: int,
        fan_out: int = 0,
        generator: torch.Generator | None = None,
    ) -> Neighbourhood:
        """Return what `steps` steps of the operator read for `targets`; see `nn.neighbourhood`."""
        # Why entries of the rows (decision 16): a neighbourhood needs no operator over all nodes.
        if kind not in self._weights:
            self._weights[kind] = edge_weights(kind, self.rows.ptr, self.gates)
        return around(self.rows, self._weights[kind], targets, steps, fan_out, generator)
