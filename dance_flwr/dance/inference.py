"""Inference from evidence: the plain pass, the views of a prediction, and evidence packs of any
node.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, condense_text, select_candidates
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction
from dance_flwr.dance.packs import Packs
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.data.text.table import TextTable
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.ragged import weighted_rows

_NODES_PER_BLOCK = 1024  # gathered candidate chunks of a block: about 1024 * 6 * 8 rows of d floats


class GraphView(Protocol):
    """What inference reads of a `LocalGraph`."""

    @property
    def hops(self) -> HopLists:
        """1-hop and 2-hop neighbourhoods."""
        ...

    def operator(self, kind: str) -> Tensor:
        """Return the [n, n] propagation operator."""
        ...


class ClientView(Protocol):
    """What inference reads of a `Site`."""

    @property
    def num_nodes(self) -> int:
        """Number of local nodes n."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        ...

    @property
    def table(self) -> TextTable:
        """The text bank."""
        ...

    @property
    def label_table(self) -> Tensor:
        """[n, C] one-hot training labels, rows of zeros elsewhere."""
        ...

    @property
    def graph(self) -> GraphView:
        """The whole local graph."""
        ...


@torch.no_grad()
def plain_pass(model: DanceModel, site: ClientView, graph: GraphView) -> Prediction:
    """Return g_v = z_v and p(y | v) of every node: one pass of the model over an original graph."""
    model.eval()
    hidden = model.backbone(site.table.nodes, graph.operator(model.backbone.operator))
    return Prediction(hidden, torch.softmax(model.graph_logits(hidden), dim=1))


@torch.no_grad()
def predict(
    model: DanceModel, site: ClientView, settings: DanceConfig
) -> dict[str, Float[Tensor, "n C"]]:
    """Return [n, C] probabilities of every local node per view, from its evidence.

    "fused" is softmax(Dec(x_v)) of the node's own pack; "core" runs the backbone on the original
    graph with features x_v; "plain" reads texts t_u without gating. "deployed" is the mean of the
    views that `dance.views` names.
    """
    prediction = plain_pass(model, site, site.graph)
    views = {"plain": prediction.probs}
    if settings.views != "plain":
        features, logits = fused_view(model, site, prediction, settings)
        views["fused"] = torch.softmax(logits, dim=1)
        core = model.backbone(features, site.graph.operator(model.backbone.operator))
        views["core"] = torch.softmax(model.graph_logits(core), dim=1)
    chosen = settings.views.split("+")
    views["deployed"] = torch.stack([views[name] for name in chosen]).mean(0)
    return views


@torch.no_grad()
def fused_view(
    model: DanceModel, site: ClientView, prediction: Prediction, settings: DanceConfig
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n C"]]:
    """Return x_v, [n, d], and O = Dec(x_v), [n, C], of every local node from its evidence."""
    features, logits = [], []
    for candidates, evidence in evidence_of_all(model, site, site.graph, prediction, settings):
        x = model.fuse(prediction.hidden[candidates.nodes], evidence.fused_text)
        features.append(x)
        near = label_evidence(model, candidates, evidence, site)
        logits.append(model.fused_logits(x, near))
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


def evidence_of_all(
    model: DanceModel,
    site: ClientView,
    graph: GraphView,
    prediction: Prediction,
    settings: DanceConfig,
) -> Iterator[tuple[Candidates, Evidence]]:
    """Yield candidates and evidence of all local nodes, in blocks that bound the memory needed."""
    difficulty = prediction.difficulty()
    for nodes in torch.split(torch.arange(site.num_nodes, device=site.device), _NODES_PER_BLOCK):
        candidates = select_candidates(
            model, nodes, prediction.hidden, difficulty, graph.hops, site.table, settings
        )
        hidden = prediction.hidden[nodes]
        yield candidates, condense_text(model, hidden, candidates, site.table, settings)


@torch.no_grad()
def make_packs(
    model: DanceModel,
    site: Site,
    hidden: Float[Tensor, "m h"],
    candidates: Candidates,
    evidence: Evidence,
    round_: int,
    model_id: str,
) -> Packs:
    """Return evidence packs of the candidates' nodes with the prediction Dec(x_v) that rests on
    them.

    Parameters
    ----------
    hidden : [m, h] g_v of `candidates.nodes`
    """
    near = label_evidence(model, candidates, evidence, site)
    probs = torch.softmax(model.fused_logits(model.fuse(hidden, evidence.fused_text), near), dim=1)
    return Packs.of(site, probs, candidates, evidence, round_, model_id)


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
    prediction = plain_pass(model, site, graph)
    hidden = prediction.hidden[nodes]
    candidates = select_candidates(
        model, nodes, prediction.hidden, prediction.difficulty(), graph.hops, site.table, settings
    )
    evidence = condense_text(model, hidden, candidates, site.table, settings)
    return make_packs(model, site, hidden, candidates, evidence, round_, model_id)
