"""Effects of what a model reads on its predictions: it predicts again without it.

A weight is how much of a chunk the model read; an effect is what the prediction owes to it. They
differ, for instance where another chunk repeats it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.dance.selection import HOPS
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.interventions import max_replicas, predict_changed
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.pool import Pool
from dance_flwr.nn.calibration import Calibration
from dance_flwr.nn.ragged import Ragged, heaviest, ptr_of_rows, rank_in_row, stack_rows


@dataclass(frozen=True)
class Effects:
    """What m predictions owe to the text of their packs, to neighbours and to the prior.

    Of each node, c is the predicted class, r its `rival`, and p what is deployed before any
    smoothing and any model of the client's own, calibrated where there is neither. Log-odds are
    log p(c) - log p(r).

    Attributes
    ----------
    done : [m] bool; False where text was not left out, as it cost too much: its effects are NaN
    chunks : [E] float32 log-odds that fall when one chunk of a pack is left out, by `Packs.chunks`;
        positive = the chunk speaks for c
    before, without : [m] float32 p(c), with and without all chunks of the pack
    control : [m] float32 mean of p(c) without as many chunks that are not in the pack; NaN where
        there are not as many
    """

    done: NDArray[np.bool_]
    chunks: NDArray[np.float32]
    before: NDArray[np.float32]
    without: NDArray[np.float32]
    control: NDArray[np.float32]


@torch.no_grad()
def leave_out(
    explainer: Explainer, packs: Packs, draws: int, generator: torch.Generator, max_entries: int
) -> Effects:
    """Predict nodes again without each chunk of their packs, without all, and without others.

    Parameters
    ----------
    draws : controls per node, at least 1, as many chunks each as its pack has, of the same hops
        where possible
    generator : a CPU generator; it draws the controls
    max_entries : how many nodes and edges may be computed again, all cases together; packs come in
        their order until these are spent, and the first one always
    """
    data, device = explainer.data, explainer.data.device
    nodes = torch.as_tensor(packs.nodes, device=device)
    chunks = Ragged(
        *(torch.as_tensor(part, device=device) for part in (packs.chunk_ptr, packs.chunks))
    )
    every = torch.arange(len(nodes), device=device)
    single = Ragged(torch.arange(len(chunks.index) + 1, device=device), chunks.index)
    others = _other_chunks(explainer, nodes, chunks, draws, generator)
    # At first nothing is left out, so that an effect is no difference between two ways to predict.
    nothing = Ragged(torch.zeros_like(chunks.ptr), chunks.index[:0])
    removed = stack_rows([nothing, single, chunks, *others])
    row = torch.cat([every, chunks.rows(), every, *[every] * draws])

    owners = Ragged(removed.ptr, data.table.node_of_chunk[removed.index])
    # A replica costs itself and its edges, of which there are as many as on average.
    per_node = 1 + data.graph.rows.index.numel() // max(data.num_nodes, 1)
    cost = max_replicas(explainer, nodes[row], owners) * per_node
    entries = torch.zeros_like(nodes).index_add_(0, row, cost).cumsum(0)
    # The first pack always: a small limit still shows one.
    done = (entries <= max_entries) | (every == 0)
    cases = torch.nonzero(done[row]).flatten()
    targets = nodes[row[cases]]
    probs = torch.full((len(row), len(data.card.class_names)), torch.nan, device=device)
    # Calibrated where it is the answer itself, so that a node has one probability.
    is_last = packs.stages[-1] == DEPLOYED
    calibration = explainer.calibration if is_last else Calibration()
    probs[cases] = calibration.apply(
        predict_changed(explainer, targets, removed.take(cases))
    ).float()

    best, rival = (torch.as_tensor(of, device=device) for of in (packs.predicted, packs.rival))
    odds = _log_odds(probs, best[row], rival[row])
    of_best = probs.gather(1, best[row][:, None])[:, 0]
    sizes = [len(every), len(single.index), *[len(every)] * (1 + draws)]
    full, one, *_ = torch.split(odds, sizes)
    before, _, without, *controls = torch.split(of_best, sizes)
    # All draws have the same sizes.
    as_many = others[0].ptr.diff() == chunks.ptr.diff()
    control = torch.where(as_many, torch.stack(controls).mean(0), torch.nan)
    arrays = (full[chunks.rows()] - one, before, without, control)
    return Effects(done.cpu().numpy(), *(part.cpu().numpy() for part in arrays))


def _log_odds(probs: Tensor, best: Tensor, rival: Tensor) -> Tensor:
    # Clamped, as a probability may be 0 in float32.
    logs = probs.clamp(min=torch.finfo(torch.float32).tiny).log()
    return (logs.gather(1, best[:, None]) - logs.gather(1, rival[:, None]))[:, 0].float()


def _other_chunks(
    explainer: Explainer, nodes: Tensor, chunks: Ragged, draws: int, generator: torch.Generator
) -> list[Ragged]:
    """Return, `draws` times, as many random chunks per row as `chunks` has, and none of these.

    Of each hop as many as `chunks` has there, as far as the hop has them; then of the others.
    """
    hops = explainer.data.graph.hops(explainer.settings.fan_out)
    pool = Pool.of(hops, explainer.data.table, nodes)
    inside, per_hop = pool.contains(chunks), pool.row_and_hop()
    size = len(nodes) * len(HOPS)
    quota = torch.bincount(per_hop[inside], minlength=size)
    free, per_hop = pool.chunks.keep(~inside), per_hop[~inside]
    drawn = []
    for _ in range(draws):
        # float64, so that draws do not tie; on the CPU, so that every device draws the same.
        chance = torch.rand(len(per_hop), generator=generator, dtype=torch.float64).to(nodes.device)
        # Chances are below 1: those within the quota of their hop rank above all others.
        within = rank_in_row(chance, ptr_of_rows(per_hop, size)) < quota[per_hop]
        drawn.append(heaviest(free, chance + within, chunks.ptr.diff()))
    return drawn
