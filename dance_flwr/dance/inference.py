"""Inference from evidence: the views of a prediction, and evidence packs of any node."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import (
    Candidates,
    Evidence,
    ThreeHops,
    condense_text,
    hop_candidates,
    select_candidates,
)
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.packs import Packs
from dance_flwr.dance.passes import ClientView, GraphView, embed, plain_pass, survey
from dance_flwr.data.local_graph import LocalGraph
from dance_flwr.data.site import Site
from dance_flwr.nn.ragged import rows_at, weighted_rows

_NODES_PER_BLOCK = 4096  # of one selection: about 4096 * 50 rows of h floats


@torch.no_grad()
def predict(
    model: DanceModel, site: ClientView, settings: DanceConfig
) -> dict[str, Float[Tensor, "n C"]]:
    """Return [n, C] probabilities of every local node per view, from its evidence.

    "fused" is softmax(Dec(x_v)) of the node's own pack; "core" runs the backbone on the original
    graph with features x_v; "plain" reads texts t_u without gating. "deployed" is the mean of the
    views that `dance.views` names; the others are not computed.
    """
    everywhere = plain_pass(model, site, site.graph)
    nodes = torch.arange(site.num_nodes, device=site.device)
    return _views(model, site, settings, nodes, everywhere.hidden, everywhere.difficulty)


@torch.no_grad()
def predict_nodes(
    model: DanceModel,
    site: Site,
    settings: DanceConfig,
    nodes: Int64[Tensor, "m"],
    difficulty: Float[Tensor, "n"] | None = None,
    version: str = "",
) -> dict[str, Float[Tensor, "m C"]]:
    """Return `predict` of these distinct nodes; reads them and their surroundings alone.

    Parameters
    ----------
    difficulty : u_v of all nodes, which preselects evidence at hop 2; None = of this model, at the
        cost of a pass over the graph
    version : names this difficulty, so that what follows from it alone is computed once
    """
    chosen = settings.views.split("+")
    if "core" in chosen:
        return {name: probs[nodes] for name, probs in predict(model, site, settings).items()}
    hidden = embed(model, site, site.graph, nodes, again=bool(version))
    if chosen == ["plain"]:
        return _views(model, site, settings, nodes, hidden, hidden.new_empty(0))
    if difficulty is None:
        difficulty = survey(model, site, site.graph).difficulty
    if not version:
        return _views(model, site, settings, nodes, hidden, difficulty)
    asked = nodes.cpu().numpy().tobytes()
    key = (version, settings.fan_out, settings.hop2_pool, asked)
    known = site.remember(
        "candidates",
        key,
        lambda: hop_candidates(
            nodes, site.graph.hops(settings.fan_out), difficulty, settings.hop2_pool
        ),
    )
    return _views(model, site, settings, nodes, hidden, difficulty, known)


def _views(
    model: DanceModel,
    site: ClientView,
    settings: DanceConfig,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    known: ThreeHops | None = None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the deployed views of `nodes` and their mean; "core" needs every node."""
    views, chosen = {}, settings.views.split("+")
    if "plain" in chosen:
        views["plain"] = torch.softmax(model.graph_logits(hidden), dim=1)
    if chosen != ["plain"]:
        features, logits = fused_view(model, site, nodes, hidden, difficulty, settings, known)
        if "fused" in chosen:
            views["fused"] = torch.softmax(logits, dim=1)
        if "core" in chosen:
            operator = site.graph.operator(model.backbone.operator)
            core = model.condensed_hidden(features, operator)
            views["core"] = torch.softmax(model.graph_logits(core), dim=1)
    return views | {"deployed": torch.stack([views[name] for name in chosen]).mean(0)}


@torch.no_grad()
def fused_view(
    model: DanceModel,
    site: ClientView,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    settings: DanceConfig,
    known: ThreeHops | None = None,
) -> tuple[Float[Tensor, "m w"], Float[Tensor, "m C"]]:
    """Return x_v, [m, w], and O = Dec(x_v), [m, C], of these nodes from their evidence."""
    features, logits = [], []
    blocks = evidence_of(model, site, site.graph, nodes, hidden, difficulty, settings, known)
    for g, (candidates, evidence) in zip(
        torch.split(hidden, _NODES_PER_BLOCK), blocks, strict=True
    ):
        features.append(model.fuse(g, evidence.fused_text))
        near = label_evidence(model, candidates, evidence, site)
        logits.append(model.fused_logits(features[-1], near))
    return torch.cat(features), torch.cat(logits)


def label_evidence(
    model: DanceModel, candidates: Candidates, evidence: Evidence, site: ClientView
) -> Tensor | None:
    """Return `neighbour_labels` if the model reads label evidence, else None."""
    if model.head_labels is None:
        return None
    return neighbour_labels(candidates, evidence, site.label_table)


def neighbour_labels(
    candidates: Candidates, evidence: Evidence, label_table: Float[Tensor, "n C"]
) -> Float[Tensor, "m 2*C"]:
    """[y_1 || y_2], y_l = sum_u alpha^(l)_{v,u} onehot(y_u) over selected neighbours; [m, 2C].

    Only neighbours with a training label count, and never the node itself, so a training node is
    treated like any other.

    Parameters
    ----------
    label_table : [n, C] one-hot training labels, rows of zeros elsewhere
    """
    parts = [
        weighted_rows(gate, hop, label_table)
        for gate, hop in zip(evidence.gates[1:], candidates.hops[1:], strict=True)
    ]
    return torch.cat(parts, dim=1)


def evidence_of(
    model: DanceModel,
    site: ClientView,
    graph: GraphView,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    settings: DanceConfig,
    known: ThreeHops | None = None,
) -> Iterator[tuple[Candidates, Evidence]]:
    """Yield candidates and evidence of `nodes`, in blocks that bound the memory needed.

    Parameters
    ----------
    known : `hop_candidates` of the nodes, if they are known
    """
    hops = graph.hops(settings.fan_out)
    for rows in torch.split(torch.arange(nodes.numel(), device=nodes.device), _NODES_PER_BLOCK):
        g, around = rows_at(hidden, rows), known
        if known is not None and rows.numel() < nodes.numel():
            zero, one, two = (ragged.take(rows) for ragged in known)
            around = (zero, one, two)
        candidates = select_candidates(
            model, nodes[rows], g, difficulty, hops, site.table, settings, around
        )
        yield candidates, condense_text(model, g, candidates, site.table, settings)


@torch.no_grad()
def make_packs(
    model: DanceModel,
    site: Site,
    hidden: Float[Tensor, "m h"],
    candidates: Candidates,
    evidence: Evidence,
    round_: int,
    model_id: str,
    difficulty_round: int,
) -> Packs:
    """Return evidence packs of the candidates' nodes with the prediction Dec(x_v) that rests on
    them.

    Parameters
    ----------
    hidden : [m, h] g_v of `candidates.nodes`
    difficulty_round : as in `Packs`
    """
    near = label_evidence(model, candidates, evidence, site)
    probs = torch.softmax(model.fused_logits(model.fuse(hidden, evidence.fused_text), near), dim=1)
    return Packs.of(site, probs, candidates, evidence, round_, model_id, difficulty_round)


@torch.no_grad()
def explain(
    model: DanceModel,
    site: Site,
    nodes: Int64[Tensor, "m"],
    settings: DanceConfig,
    round_: int,
    model_id: str,
    graph: LocalGraph | None = None,
) -> Packs:
    """Return evidence packs of any local nodes under this model: gate, select, fuse, predict.

    Parameters
    ----------
    nodes : [m] int64
    graph : the graph to read; None = the whole local graph
    """
    graph = graph or site.graph
    difficulty = survey(model, site, graph).difficulty
    hidden = embed(model, site, graph, nodes)
    hops = graph.hops(settings.fan_out)
    candidates = select_candidates(model, nodes, hidden, difficulty, hops, site.table, settings)
    evidence = condense_text(model, hidden, candidates, site.table, settings)
    return make_packs(model, site, hidden, candidates, evidence, round_, model_id, round_)
