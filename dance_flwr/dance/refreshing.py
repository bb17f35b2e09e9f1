"""Alg. 3 and 4 for the cores of the coming rounds: their evidence and their edges."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, condense_text, freeze, select_candidates
from dance_flwr.dance.inference import evidence_of
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import embed, survey
from dance_flwr.dance.state import ClientState
from dance_flwr.dance.topology import Edges, connect

_MOST_NODES = 4096  # of one selection: about 4096 * 50 rows of h floats

# g_v of some nodes, their candidates and their evidence.
Selected = tuple[Float[Tensor, "m h"], Candidates, Evidence]


def coming_cores(
    state: ClientState, turn: int, settings: DanceConfig, round_: int, rounds: int
) -> list[Int64[Tensor, "K"]]:
    """Return the core of `turn` and those until the next text refresh, at most 4096 nodes in all.

    Parameters
    ----------
    rounds : of the run
    """
    assert state.queue is not None
    core, every = state.queue.core(turn), settings.text_refresh_every
    count = 1
    if every > 1 and state.queue.moves:
        left = min(every - (round_ - 1) % every, rounds - round_ + 1)
        count = max(1, min(left, _MOST_NODES // max(1, core.numel())))
    return [core, *(state.queue.core(turn + step) for step in range(1, count))]


@torch.no_grad()
def select_evidence(
    model: DanceModel,
    data: ClientData,
    state: ClientState,
    settings: DanceConfig,
    cores: Sequence[Int64[Tensor, "K"]],
) -> Selected:
    """Alg. 3 for the distinct nodes of these cores, ascending.

    If evidence is selected in round 1 alone, that is for all nodes, so that it also covers later
    cores; its weights are those of the model.
    """
    assert state.difficulty is not None
    nodes = cores[0] if len(cores) == 1 else torch.unique(torch.cat(list(cores)))
    graph = data.training_graph
    hidden = embed(model, data, graph, nodes)
    if settings.text_refresh_every:
        hops = graph.hops(settings.fan_out)
        candidates = select_candidates(
            model, nodes, hidden, state.difficulty, hops, data.table, settings
        )
    else:
        if state.frozen is None:
            everyone = torch.arange(data.num_nodes, device=data.device)
            everywhere = survey(model, data, graph).hidden
            blocks = evidence_of(
                model, data, graph, everyone, everywhere, state.difficulty, settings
            )
            state.frozen = Candidates.stack([freeze(*block) for block in blocks])
        candidates = state.frozen.take(nodes)
    return hidden, candidates, condense_text(model, hidden, candidates, data.table, settings)


@torch.no_grad()
def core_edges(
    model: DanceModel,
    data: ClientData,
    selected: Selected,
    settings: DanceConfig,
    cores: Sequence[Int64[Tensor, "K"]],
) -> tuple[Edges, ...]:
    """Return the edges of each condensed graph by `topology_rule`: rebuilt, induced by the graph,
    or none.

    Parameters
    ----------
    selected : of the nodes of all cores
    """
    hidden, candidates, evidence = selected
    if settings.topology_rule == "induced":
        return tuple(data.training_graph.induced_edges(core) for core in cores)
    if settings.topology_rule != "self-expressive":
        none = candidates.nodes.new_empty(0)
        return tuple((none, none, hidden.new_empty(0)) for _ in cores)
    fused = model.fuse(hidden, evidence.fused_text)
    # As in `trained_prediction`:
    logits = model.graph_logits(hidden) if settings.plain_weight else model.fused_logits(fused)
    labels = data.train_labels[candidates.nodes]
    classes = torch.where(labels >= 0, labels, logits.argmax(dim=1))
    if len(cores) == 1:
        return (connect(fused, evidence.text, classes, settings),)
    rows = [torch.searchsorted(candidates.nodes, core) for core in cores]
    if settings.candidate_search == "exact":
        return tuple(connect(fused[i], evidence.text[i], classes[i], settings) for i in rows)
    return _connect_all(fused, evidence.text, classes, rows, settings)


def _connect_all(
    fused: Float[Tensor, "m w"],
    text: Float[Tensor, "m t"],
    classes: Int64[Tensor, "m"],
    rows: Sequence[Int64[Tensor, "K"]],
    settings: DanceConfig,
) -> tuple[Edges, ...]:
    """`connect` the rows of every core in one call: nodes of two cores are in no class together."""
    which, sizes = torch.cat(list(rows)), torch.tensor([len(i) for i in rows])
    core = torch.repeat_interleave(sizes.to(which.device))
    apart = classes[which] + core * (classes.max() + 1)
    row, col, weight = connect(fused[which], text[which], apart, settings)
    counts = torch.bincount(core[row], minlength=len(rows)).tolist()
    parts = (torch.split(part, counts) for part in (row, col, weight))
    starts = (sizes.cumsum(0) - sizes).tolist()
    return tuple((r - start, c - start, w) for start, r, c, w in zip(starts, *parts, strict=True))
