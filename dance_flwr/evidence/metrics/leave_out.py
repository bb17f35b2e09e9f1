"""Effects of single chunks on a prediction: the model predicts again without each of them.

A weight is how much of a chunk the model read; an effect is what the prediction owes to it. They
differ, for instance where another chunk says the same. Controls are chunks of the same hop that
the model did not select.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.selection import HOPS
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.metrics.controls import Pool
from dance_flwr.evidence.metrics.interventions import max_replicas, near_chunks, repredict
from dance_flwr.evidence.pack import Packs
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, rank_in_row


@dataclass(frozen=True)
class ChunkEffects:
    """Effects of E cases, each a node and one chunk that was left out.

    Attributes
    ----------
    done : [m] bool, whether the chunks of the node were left out; False where it cost too much
    row : [E] int64, the pack; chunk : [E] int64; hop : [E] int64 of the chunk's owner
    selected : [E] bool, whether the chunk is in the pack; else it is a control
    effect : [E] float32, p(c | v) - p(c | v without the chunk), c = the class that is deployed
        before any smoothing
    turned : [E] bool, whether another class is predicted without the chunk
    """

    done: NDArray[np.bool_]
    row: NDArray[np.int64]
    chunk: NDArray[np.int64]
    hop: NDArray[np.int64]
    selected: NDArray[np.bool_]
    effect: NDArray[np.float32]
    turned: NDArray[np.bool_]

    def of(self, row: int) -> NDArray[np.int64]:
        """Return the cases of a pack, in the order of its chunks, then the controls by hop."""
        return np.flatnonzero(self.row == row)


@torch.no_grad()
def leave_out(
    explainer: Explainer, packs: Packs, draws: int, generator: torch.Generator, max_entries: int
) -> ChunkEffects:
    """Predict the nodes of packs again without each of their chunks, and without each control.

    Parameters
    ----------
    draws : controls per hop with a selected chunk; all other chunks of the hop if there are fewer
    generator : a CPU generator; it draws the controls
    max_entries : how many nodes and edges may be computed again, all cases together; packs come in
        their order until these are spent, and the first one always
    """
    data, device = explainer.data, explainer.data.device
    nodes = torch.as_tensor(packs.nodes, device=device)
    chunks = Ragged(
        *(torch.as_tensor(part, device=device) for part in (packs.chunk_ptr, packs.chunks))
    )
    pool = Pool.of(data.graph.hops(explainer.settings.fan_out), data.table, nodes)
    row, chunk, hop, selected = _cases(pool, chunks, draws, generator)
    owners = Ragged(torch.arange(len(row) + 1, device=device), data.table.node_of_chunk[chunk])
    # A replica costs itself and its edges, of which there are as many as on average.
    per_node = 1 + data.graph.rows.index.numel() // max(data.num_nodes, 1)
    cost = max_replicas(explainer, nodes[row], owners) * per_node
    entries = torch.zeros_like(nodes).index_add_(0, row, cost).cumsum(0)
    # The first pack always: a small limit still shows one.
    done = (entries <= max_entries) | (torch.arange(len(nodes), device=device) == 0)
    row, chunk, hop, selected = (part[done[row]] for part in (row, chunk, hop, selected))

    every = nodes[done]
    # Predicted in the same way as without a chunk, so that an effect is no difference of methods.
    full = repredict(explainer, every, near_chunks(data, every))
    place = (done.cumsum(0) - 1)[row]
    around = near_chunks(data, nodes[row])
    rest = around.keep(around.index != chunk[around.rows()])
    after = repredict(explainer, nodes[row], rest)
    best = full.argmax(dim=1)[place] if len(row) else row
    effect = (full[place] - after).gather(1, best[:, None])[:, 0]
    arrays = (done, row, chunk, hop, selected, effect.float(), after.argmax(dim=1) != best)
    return ChunkEffects(*(part.cpu().numpy() for part in arrays))


def _cases(
    pool: Pool, chunks: Ragged, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return row, chunk, hop and whether it is selected of every case, by row; [E] each.

    The chunks of a pack come heaviest first, as there, and then controls by hop.
    """
    size = chunks.num_rows
    per_hop, inside = pool.row_and_hop(), pool.contains(chunks)
    # Controls at the hops of selected chunks alone: others would compare distances.
    compared = torch.bincount(per_hop[inside], minlength=size * len(HOPS)) > 0
    free = ~inside & compared[per_hop]
    # float64, so that draws do not tie; -1 ranks what is selected behind all others.
    chance = torch.rand(len(per_hop), generator=generator, dtype=torch.float64).to(free.device)
    chance = torch.where(free, chance, -1.0)
    drawn = free & (rank_in_row(chance, ptr_of_rows(per_hop, size * len(HOPS))) < draws)
    row = torch.cat([chunks.rows(), pool.chunks.rows()[drawn]])
    chunk = torch.cat([chunks.index, pool.chunks.index[drawn]])
    selected = torch.arange(len(row), device=row.device) < len(chunks.index)
    hop = torch.cat([_hops_of(pool, chunks), pool.hop[drawn]])
    # Stable: the chunks of a pack stay heaviest first, controls come after them by hop.
    order = torch.sort(row, stable=True).indices
    return row[order], chunk[order], hop[order], selected[order]


def _hops_of(pool: Pool, chunks: Ragged) -> Tensor:
    """Return the hop of each chunk's owner, [E] int64; every chunk is in its row of the pool."""
    size = int(torch.cat([pool.chunks.index, chunks.index, chunks.index.new_zeros(1)]).max()) + 1
    keys = pool.chunks.rows() * size + pool.chunks.index
    order = torch.argsort(keys)
    at = torch.searchsorted(keys[order], chunks.rows() * size + chunks.index)
    return pool.hop[order][at.clamp(max=max(len(keys) - 1, 0))]
