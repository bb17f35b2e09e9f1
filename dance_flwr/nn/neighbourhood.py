"""Samples of rows of neighbours, and what the last propagation steps read for some targets."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.nn.propagation import EdgeWeights, csr, widened
from dance_flwr.nn.ragged import Ragged, ptr_of_sizes


@dataclass(frozen=True)
class Sample:
    """A sample of the entries of m rows.

    Attributes
    ----------
    place : [E] int64, positions in `index` of the sampled `Ragged`, ascending within a row
    ptr : [m + 1] int64, the rows of `place`; row : [E] int64, the row of each
    weight : [E] float32, how many entries of its row each one stands for; 1 where nothing was left
        out, and the weights of a row sum to its size
    """

    place: Int64[Tensor, "E"]
    ptr: Int64[Tensor, "p"]
    row: Int64[Tensor, "E"]
    weight: Float[Tensor, "E"]


def sample_rows(
    rows: Ragged, chosen: Int64[Tensor, "m"], fan_out: int, generator: torch.Generator | None
) -> Sample:
    """Draw one entry from each of min(D, B) equal parts of every chosen row.

    Stratified sampling without replacement: part j of a row of D entries is
    [floor(j D / B), floor((j + 1) D / B)), and the entry drawn from it stands for the whole part,
    so that sum_j weight_j x_j is an unbiased estimate of the sum over the row. O(m B), whatever
    the sizes of the rows: a hub is never read in full.

    Parameters
    ----------
    chosen : [m] int64, numbers of rows
    fan_out : B; 0 = keep all entries
    generator : a CPU generator, the only source of randomness; None = the same entries of a row
        every time, whatever other rows are asked for
    """
    first = rows.ptr[chosen]
    sizes = rows.ptr[chosen + 1] - first
    counts = sizes if fan_out == 0 else sizes.clamp(max=fan_out)
    ptr = ptr_of_sizes(counts)
    row = torch.repeat_interleave(counts)
    column = torch.arange(row.numel(), device=ptr.device) - ptr[:-1][row]
    # Nothing is left out: no draws, and each entry stands for itself.
    if not fan_out or bool((counts == sizes).all()):
        return Sample(first[row] + column, ptr, row, torch.ones_like(column, dtype=torch.float32))
    # Why (decision 15): one entry from each of B equal parts costs O(B) also for a hub, and each
    # stands for its part, so that sums over a row are unbiased.
    size, parts = sizes[row], counts[row]
    low, high = column * size // parts, (column + 1) * size // parts
    part = high - low
    if generator is None:
        uniform = _hash(chosen[row], column)
    else:
        # Drawn on the CPU, so that every device draws the same; float64 reaches every entry of a
        # part.
        uniform = torch.rand(row.numel(), generator=generator, dtype=torch.float64).to(ptr.device)
    return Sample(first[row] + low + (uniform * part).long(), ptr, row, part.float())


def _hash(row: Int64[Tensor, "E"], column: Int64[Tensor, "E"]) -> Float[Tensor, "E"]:
    """Return numbers in [0, 1) that depend on (row, column) alone.

    The finaliser of MurmurHash3 in 32 bits, which is enough for draws among neighbours.
    """
    value = (row * 0x9E3779B1 + column * 0x85EBCA6B) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = ((value ^ (value >> shift)) * factor) & 0xFFFFFFFF
    return value.double() / 2**32


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

    def rounded_up(self) -> "Neighbourhood":
        """Return the neighbourhood with its numbers of targets and nodes as powers of two.

        What is added are rows and columns of zeros, and node 0: neighbourhoods of nearly one size
        get one shape. Each operator still has at least as many columns as rows.
        """
        rows = self.operators[-1].size(0) if self.operators else self.nodes.numel()
        size, wider = power_of_two(rows), []
        for step in reversed(self.operators):
            columns = max(size, power_of_two(step.size(1)))
            wider.append(widened(step, size, columns))
            size = columns
        added = self.nodes.new_zeros(size - self.nodes.numel())
        return Neighbourhood(torch.cat([self.nodes, added]), tuple(reversed(wider)))


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least `size`, and at least 16.

    Examples
    --------
    >>> [power_of_two(size) for size in (0, 16, 17, 64)]
    [16, 16, 32, 64]
    """
    return 1 << max(4, (size - 1).bit_length())


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
        ptr, near = sample.ptr, rows.index[sample.place]
        value = weights.of(nodes[sample.row], near, sample.place)
        # Why weighted (decision 16): a sampled entry stands for its part of the row, so that sums
        # stay unbiased. Features of edges are not summed (decision 15).
        value = value * sample.weight if weights.sums else value
        # After sampling, so that the node itself is always among its neighbours.
        if weights.loops is not None:
            ptr, near, value = _with_loops(sample, near, value, nodes, weights.loops[nodes])
        column, wider = _number(nodes, near)
        operators.append(csr(ptr, column, value, (nodes.numel(), wider.numel())))
        nodes = wider
    return Neighbourhood(nodes, tuple(reversed(operators)))


def _with_loops(
    sample: Sample,
    near: Int64[Tensor, "E"],
    value: Float[Tensor, "E"],
    nodes: Int64[Tensor, "m"],
    loops: Float[Tensor, "m"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (ptr, column, value) with an entry of the node itself before each row."""
    ptr = sample.ptr + torch.arange(len(sample.ptr), device=near.device)
    first = ptr[:-1]
    others = torch.arange(1, near.numel() + 1, device=near.device) + sample.row
    column = near.new_empty(near.numel() + nodes.numel())
    values = value.new_empty(column.numel())
    column[first], column[others] = nodes, near
    values[first], values[others] = loops, value
    return ptr, column, values


def _number(first: Int64[Tensor, "m"], nodes: Int64[Tensor, "E"]) -> tuple[Tensor, Tensor]:
    distinct, inverse = torch.unique(torch.cat([first, nodes]), return_inverse=True)
    place = torch.full_like(distinct, -1)
    place[inverse[: first.numel()]] = torch.arange(first.numel(), device=first.device)
    # `first` stays in front: the rows of a step are then the first of its columns.
    new = place < 0
    place[new] = torch.arange(first.numel(), distinct.numel(), device=first.device)
    return place[inverse[first.numel() :]], torch.cat([first, distinct[new]])
