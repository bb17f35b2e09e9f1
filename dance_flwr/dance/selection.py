"""`Selection`: the evidence of nodes, in each form that a round or a file needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.ragged import Ragged, padded, rows_at, stack_rows

# l of eq:neighbor_gating.
HOPS = (0, 1, 2)
ThreeHops = tuple[Ragged, Ragged, Ragged]
Gates = tuple[Float[Tensor, "E0"], Float[Tensor, "E1"], Float[Tensor, "E2"]]


@dataclass(frozen=True)
class Selection:
    """Candidates of the evidence of m nodes, and what was selected of them.

    A candidate of weight 0 was rejected.

    Attributes
    ----------
    nodes : [m] int64, the nodes whose evidence this is
    hops : per hop l in 0, 1, 2: m rows of candidate nodes
    gates : per hop, [E_l] alpha^(l), at most B_l non-zero per row, each non-empty row sums to 1
    chunks : m rows of candidate chunks, E_v
    chunk_weights : [E] pi, at most B_tok non-zero per row
    context : [m, d] c_v (eq:hier_context)

    Examples
    --------
    >>> hop0 = Ragged(torch.tensor([0, 1]), torch.tensor([7]))
    >>> hop1 = Ragged(torch.tensor([0, 2]), torch.tensor([3, 5]))
    >>> chunks, one = Ragged(torch.tensor([0, 2]), torch.tensor([20, 21])), torch.ones(1)
    >>> gates = one, torch.tensor([0.0, 1.0]), torch.empty(0)
    >>> none = Ragged(torch.tensor([0, 0]), torch.empty(0, dtype=torch.int64))
    >>> of_seven = Selection(hop0.index, (hop0, hop1, none), gates, chunks, gates[1], one[None])
    >>> of_seven.frozen().hops[1].index, of_seven.frozen().chunks.index
    (tensor([5]), tensor([21]))
    """

    nodes: Int64[Tensor, "m"]
    hops: ThreeHops
    gates: Gates
    chunks: Ragged
    chunk_weights: Float[Tensor, "E"]
    context: Float[Tensor, "m d"]

    @property
    def parts(self) -> list[tuple[Ragged, Float[Tensor, "_"]]]:
        """Candidates and weights of hops 0, 1 and 2, then of the chunks."""
        weights = (*self.gates, self.chunk_weights)
        return list(zip((*self.hops, self.chunks), weights, strict=True))

    @classmethod
    def of_parts(
        cls,
        nodes: Int64[Tensor, "m"],
        parts: Sequence[tuple[Ragged, Float[Tensor, "_"]]],
        context: Float[Tensor, "m d"],
    ) -> "Selection":
        """Return the selection with these `parts`."""
        (zero, a), (one, b), (two, c), (chunks, pi) = parts
        return cls(nodes, (zero, one, two), (a, b, c), chunks, pi, context)

    def frozen(self) -> "Selection":
        """Return the selection without what was rejected.

        Between two selections weights continue to adapt, but among the selected alone.
        """
        # entmax and Pi_B give an exact zero to what they reject, so that no tolerance is needed.
        parts = [(rows.keep(weights > 0), weights[weights > 0]) for rows, weights in self.parts]
        return Selection.of_parts(self.nodes, parts, self.context)

    def take(self, rows: Int64[Tensor, "j"]) -> "Selection":
        """Return these rows, [j] int64; a context in half precision becomes float32."""
        parts = []
        for ragged, weights in self.parts:
            # Positions are taken, not candidates, since weights follow the same positions.
            entries = torch.arange(ragged.index.numel(), device=rows.device)
            places = Ragged(ragged.ptr, entries).take(rows)
            parts.append((Ragged(places.ptr, ragged.index[places.index]), weights[places.index]))
        return Selection.of_parts(self.nodes[rows], parts, rows_at(self.context, rows))

    @classmethod
    def stack(cls, blocks: Sequence["Selection"]) -> "Selection":
        """Return the selection of all blocks' nodes, one block after the other."""
        parts = []
        for part in zip(*(block.parts for block in blocks), strict=True):
            rows, weights = zip(*part, strict=True)
            parts.append((stack_rows(rows), torch.cat(weights)))
        nodes = torch.cat([block.nodes for block in blocks])
        return cls.of_parts(nodes, parts, torch.cat([block.context for block in blocks]))

    @cached_property
    def is_frozen(self) -> bool:
        """Whether nothing of it was rejected."""
        return all(bool((weights > 0).all()) for _, weights in self.parts)

    @cached_property
    def padded(self) -> "Padded":
        """The candidates as dense rows, for training."""
        # Why 0: padding is a valid index, so that texts are gathered without a branch.
        parts = [padded(rows.index, rows.ptr.diff(), 0.0) for rows, _ in self.parts]
        index, inside = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        selected = inside
        if not self.is_frozen:
            chosen = zip(parts, self.parts, strict=True)
            masks = [mask.masked_scatter(mask, weights > 0) for (_, mask), (_, weights) in chosen]
            selected = torch.cat(masks, dim=1)
        widths = tuple(mask.size(1) for _, mask in parts)
        return Padded(self.nodes, widths, index, inside, selected, self.context)

    @property
    def selected_chunks(self) -> Int64[Tensor, "s"]:
        """[s] int64, the selected chunks; one entry per node and chunk."""
        return self.chunks.index[self.chunk_weights > 0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a file stores."""
        tensors = {"nodes": self.nodes, "context": self.context}
        for name, (rows, weights) in zip(_PARTS, self.parts, strict=True):
            tensors |= {f"{name}_ptr": rows.ptr, f"{name}_index": rows.index}
            tensors[f"{name}_weights"] = weights
        return {name: tensor.numpy() for name, tensor in moved(tensors, HOST).items()}

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> "Selection":
        """Rebuild the selection from its `arrays`, as tensors.

        Raises
        ------
        KeyError : an array is missing
        """
        parts = [
            (Ragged(tensors[f"{name}_ptr"], tensors[f"{name}_index"]), tensors[f"{name}_weights"])
            for name in _PARTS
        ]
        return cls.of_parts(tensors["nodes"], parts, tensors["context"])


# Names of `parts` in files, in their order.
_PARTS = ("hop0", "hop1", "hop2", "chunks")


@dataclass(frozen=True)
class Padded:
    """The candidates of K nodes as dense rows; the columns are hops 0, 1 and 2, then chunks.

    Attributes
    ----------
    nodes : [K] int64; context : [K, d], of the `Selection`
    widths : columns of each part; they sum to L
    index : [K, L] int64, the candidates; 0 where padded
    inside : [K, L] bool, False where padded
    selected : [K, L] bool, False where padded or rejected
    """

    nodes: Int64[Tensor, "K"]
    widths: tuple[int, ...]
    index: Int64[Tensor, "K L"]
    inside: Bool[Tensor, "K L"]
    selected: Bool[Tensor, "K L"]
    context: Float[Tensor, "K d"]

    def take(self, rows: Int64[Tensor, "j"]) -> "Padded":
        """Return these rows ([j] int64) where nothing was rejected, without empty columns.

        A context in half precision becomes float32.
        """
        index, inside, context = self.index[rows], self.inside[rows], rows_at(self.context, rows)
        filled, widths, start = inside.any(dim=0).tolist(), [], 0
        for width in self.widths:
            widths.append(sum(filled[start : start + width]))
            start += width
        if not all(filled):
            columns = torch.tensor(filled).nonzero().flatten()
            index, inside = (part.index_select(1, columns) for part in (index, inside))
        return Padded(self.nodes[rows], tuple(widths), index, inside, inside, context)

    def widened(self, widths: Sequence[int], rows: int) -> "Padded":
        """Return the evidence with at least these columns of each part, and with so many rows."""
        count, places, size = len(self.nodes), list[int](), 0
        widths = tuple(map(max, self.widths, widths))
        for own, wide in zip(self.widths, widths, strict=True):
            places += range(size, size + own)
            size += wide

        def wider(table: Tensor) -> Tensor:
            wide = table.new_zeros(rows, size)
            wide[:count, torch.tensor(places, dtype=torch.int64)] = table
            return wide

        index, inside, selected = map(wider, (self.index, self.inside, self.selected))
        nodes, context = (
            F.pad(self.nodes, (0, rows - count)),
            F.pad(self.context, (0, 0, 0, rows - count)),
        )
        return Padded(nodes, widths, index, inside, selected, context)

    @property
    def neighbours(self) -> Int64[Tensor, "s"]:
        """[s] int64, the selected nodes at hops 1 and 2; one entry per node and neighbour."""
        near = slice(self.widths[0], sum(self.widths[:-1]))
        return self.index[:, near][self.selected[:, near]]

    @property
    def selected_chunks(self) -> Int64[Tensor, "s"]:
        """[s] int64, the selected chunks; one entry per node and chunk."""
        chunks = slice(sum(self.widths[:-1]), None)
        return self.index[:, chunks][self.selected[:, chunks]]

    def counts(self, tokens: NDArray[np.int32]) -> dict[str, int]:
        """Return totals: nodes, neighbours, chunks and tokens; a node is not its own neighbour.

        Parameters
        ----------
        tokens : [R] tokens of every chunk of the client's text bank
        """
        chunks = self.selected_chunks.cpu().numpy()
        return {
            "condensed-nodes": self.nodes.numel(),
            "evidence-neighbours": self.neighbours.numel(),
            "evidence-chunks": len(chunks),
            "evidence-tokens": int(tokens[chunks].sum()) if len(chunks) else 0,
        }
