"""The nodes around a batch, and the propagation steps among them: O(m B^steps), whatever n is."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.propagation import EdgeWeights, csr
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes, row_of_entry
from dance_flwr.nn.sampling import sample_rows


@dataclass(frozen=True)
class Neighbourhood:
    """What the last steps of a backbone read for m targets.

    Attributes
    ----------
    nodes : [b] int64, distinct; the targets come first
    operators : steps from all nodes to the targets, each a sparse CSR matrix whose rows are the
        first of its columns; Horvitz-Thompson weights where neighbours were sampled, so that each
        step estimates the full one without bias
    """

    nodes: Int64[Tensor, "b"]
    operators: tuple[Tensor, ...]


def around(
    rows: Ragged,
    weights: EdgeWeights,
    targets: Int64[Tensor, "m"],
    steps: int,
    fan_out: int,
    generator: torch.Generator | None,
) -> Neighbourhood:
    """Return the neighbourhood of `targets` over `steps` propagation steps.

    Parameters
    ----------
    rows : n rows of neighbours, without the node itself
    weights : entries of the operator; the node itself is always kept
    targets : [m] int64, distinct
    fan_out : neighbours sampled per node and step; 0 = all
    generator : as in `sample_rows`
    """
    nodes, operators = targets, []
    # From the targets outwards; a pass applies the operators in the reverse order.
    for _ in range(steps):
        sample = sample_rows(rows, nodes, fan_out, generator)
        row, near = row_of_entry(sample.ptr), rows.index[sample.place]
        value = weights.of(nodes[row], near, sample.place)
        # Why weighted (decision 16): a sampled entry stands for its part of the row, so that sums
        # stay unbiased. Features of edges are not summed (decision 15).
        value = value * sample.weight if weights.sums else value
        # After sampling, so that the node itself is always among its neighbours.
        if weights.loops is not None:
            row, near, value = _with_loops(sample.ptr, near, value, nodes, weights.loops[nodes])
        column, wider = _number(nodes, near)
        # Sizes with the loops, which `sample.ptr` does not count.
        sizes = torch.bincount(row, minlength=nodes.numel())
        operators.append(csr(ptr_of_sizes(sizes), column, value, (nodes.numel(), wider.numel())))
        nodes = wider
    return Neighbourhood(nodes, tuple(reversed(operators)))


def _with_loops(
    ptr: Int64[Tensor, "p"],
    near: Int64[Tensor, "E"],
    value: Float[Tensor, "E"],
    nodes: Int64[Tensor, "m"],
    loops: Float[Tensor, "m"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (row, column, value) with an entry of the node itself before each row."""
    count, rows = nodes.numel(), row_of_entry(ptr)
    first = ptr[:-1] + torch.arange(count, device=ptr.device)
    others = torch.arange(near.numel(), device=ptr.device) + rows + 1
    row = near.new_empty(near.numel() + count)
    column, values = torch.empty_like(row), value.new_empty(row.numel())
    row[first], row[others] = torch.arange(count, device=ptr.device), rows
    column[first], column[others] = nodes, near
    values[first], values[others] = loops, value
    return row, column, values


def _number(first: Int64[Tensor, "m"], nodes: Int64[Tensor, "E"]) -> tuple[Tensor, Tensor]:
    """Return the place of each of `nodes` in (`first`, then all others), and that list."""
    distinct, inverse = torch.unique(torch.cat([first, nodes]), return_inverse=True)
    place = torch.full_like(distinct, -1)
    place[inverse[: first.numel()]] = torch.arange(first.numel(), device=first.device)
    # `first` stays in front: the rows of a step are then the first of its columns.
    new = place < 0
    place[new] = torch.arange(first.numel(), distinct.numel(), device=first.device)
    return place[inverse[first.numel() :]], torch.cat([first, distinct[new]])
