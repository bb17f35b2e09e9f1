"""Inference from evidence: the views of a prediction."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import (
    Candidates,
    Evidence,
    condense_text,
    select_candidates,
)
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction
from dance_flwr.dance.passes import ClientView, GraphView, embed, plain_pass, survey
from dance_flwr.nn.ragged import rows_at, weighted_rows

DEPLOYED = "deployed"  # the mean of the views that `dance.views` names
_NODES_PER_BLOCK = 4096  # of one selection: about 4096 * 50 rows of h floats


@torch.no_grad()
def predict(
    model: DanceModel,
    data: ClientView,
    settings: DanceConfig,
    nodes: Int64[Tensor, "m"] | None = None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return [m, C] probabilities of local nodes per view, from their evidence.

    "fused" is softmax(Dec(x_v)) of the node's own pack; "core" runs the backbone on the original
    graph with features x_v; "plain" reads texts t_u without gating. "deployed" is the mean of the
    views that `dance.views` names; the others are not computed.

    Parameters
    ----------
    nodes : None = every local node
    """
    everywhere = plain_pass(model, data, data.graph)
    difficulty = trained_prediction(model, data, data.graph, settings, everywhere).difficulty
    every = torch.arange(data.num_nodes, device=data.device)
    if nodes is None or "core" in settings.views.split("+"):  # which reads the x_v of every node
        found = views_of(model, data, settings, every, everywhere.hidden, difficulty)
        return found if nodes is None else {view: probs[nodes] for view, probs in found.items()}
    return views_of(model, data, settings, nodes, everywhere.hidden[nodes], difficulty)


@torch.no_grad()
def trained_prediction(
    model: DanceModel,
    data: ClientView,
    graph: GraphView,
    settings: DanceConfig,
    plain: Prediction,
) -> Prediction:
    """Return z_v, p(y | v) and u_v of every node by a view that the loss trains.

    That is the plain one, unless `plain-weight` is 0 as in the paper: then nothing trains its head
    on t_v, and it stays at chance. The same head is trained on x_v, so "core" takes its place;
    hop 2 is preselected by the plain view's difficulty there, for want of another.

    Parameters
    ----------
    plain : the plain pass over `graph`
    """
    if settings.plain_weight > 0:
        return plain
    nodes, hidden = torch.arange(data.num_nodes, device=data.device), plain.hidden
    blocks = evidence_of(model, data, graph, nodes, hidden, plain.difficulty, settings)
    parts = zip(torch.split(hidden, _NODES_PER_BLOCK), blocks, strict=True)
    features = torch.cat([model.fuse(g, evidence.fused_text) for g, (_, evidence) in parts])
    core = model.condensed_hidden(features, graph.operator(model.backbone.operator))
    return Prediction.of(core, torch.softmax(model.graph_logits(core), dim=1))


@torch.no_grad()
def predict_nodes(
    model: DanceModel,
    data: ClientData,
    settings: DanceConfig,
    nodes: Int64[Tensor, "m"],
    difficulty: Float[Tensor, "n"] | None = None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return `predict` of these distinct nodes; reads them and their surroundings alone.

    Parameters
    ----------
    difficulty : u_v of all nodes, which preselects evidence at hop 2; None = of this model, at the
        cost of a pass over the graph
    """
    chosen = settings.views.split("+")
    if "core" in chosen:
        return predict(model, data, settings, nodes)
    hidden = embed(model, data, data.graph, nodes, again=difficulty is not None)
    if chosen == ["plain"]:
        return views_of(model, data, settings, nodes, hidden, hidden.new_empty(0))
    if difficulty is None:
        everywhere = survey(model, data, data.graph)
        difficulty = trained_prediction(model, data, data.graph, settings, everywhere).difficulty
    return views_of(model, data, settings, nodes, hidden, difficulty)


def views_of(
    model: DanceModel,
    data: ClientView,
    settings: DanceConfig,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the deployed views of `nodes` and their mean; "core" needs every node.

    Parameters
    ----------
    hidden : [m, h] g_v; difficulty : [n] u_v, which preselects evidence at hop 2
    """
    logits, chosen = {}, settings.views.split("+")
    if "plain" in chosen:
        logits["plain"] = model.graph_logits(hidden)
    if chosen != ["plain"]:
        features, fused = fused_view(model, data, nodes, hidden, difficulty, settings)
        if "fused" in chosen:
            logits["fused"] = fused
        if "core" in chosen:
            operator = data.graph.operator(model.backbone.operator)
            logits["core"] = model.graph_logits(model.condensed_hidden(features, operator))
    return with_mean(logits, chosen)


def with_mean(
    logits: Mapping[str, Float[Tensor, "m C"]], chosen: Sequence[str]
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the probabilities of the chosen views, and "deployed"."""
    views = {name: torch.softmax(values, dim=1) for name, values in logits.items()}
    return views | {DEPLOYED: mean_of(views, chosen)}


def mean_of(
    views: Mapping[str, Float[Tensor, "m C"]], chosen: Sequence[str]
) -> Float[Tensor, "m C"]:
    """Return what is deployed: the mean of the chosen views."""
    return torch.stack([views[name] for name in chosen]).mean(0)


@torch.no_grad()
def fused_view(
    model: DanceModel,
    data: ClientView,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    settings: DanceConfig,
) -> tuple[Float[Tensor, "m w"], Float[Tensor, "m C"]]:
    """Return x_v, [m, w], and O = Dec(x_v), [m, C], of these nodes from their evidence."""
    features, logits = [], []
    blocks = evidence_of(model, data, data.graph, nodes, hidden, difficulty, settings)
    for g, (candidates, evidence) in zip(
        torch.split(hidden, _NODES_PER_BLOCK), blocks, strict=True
    ):
        features.append(model.fuse(g, evidence.fused_text))
        near = label_evidence(model, candidates, evidence, data)
        logits.append(model.fused_logits(features[-1], near))
    return torch.cat(features), torch.cat(logits)


def label_evidence(
    model: DanceModel, candidates: Candidates, evidence: Evidence, data: ClientView
) -> Tensor | None:
    """Return `neighbour_labels` if the model reads label evidence, else None."""
    if model.head_labels is None:
        return None
    return neighbour_labels(candidates, evidence, data.label_table)


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
    data: ClientView,
    graph: GraphView,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
    settings: DanceConfig,
) -> Iterator[tuple[Candidates, Evidence]]:
    """Yield candidates and evidence of `nodes`, in blocks that bound the memory needed."""
    hops = graph.hops(settings.fan_out)
    for rows in torch.split(torch.arange(nodes.numel(), device=nodes.device), _NODES_PER_BLOCK):
        g = rows_at(hidden, rows)
        candidates = select_candidates(
            model, nodes[rows], g, difficulty, hops, data.table, settings
        )
        yield candidates, condense_text(model, g, candidates, data.table, settings)
