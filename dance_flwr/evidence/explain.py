"""Explain predictions: the evidence of any node, and what each part gave to the prediction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import HOPS, Candidates, Evidence, condense_text, select_candidates
from dance_flwr.dance.inference import (
    DEPLOYED,
    label_evidence,
    mean_of,
    predict_nodes,
    trained_prediction,
)
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import embed, survey
from dance_flwr.evidence.pack import FUSED, SMOOTHED, STAGES, Packs
from dance_flwr.nn.ragged import Ragged, ptr_of_rows


@dataclass(frozen=True)
class Explainer:
    """A model at the data of one client, which explains what it predicts of their nodes.

    Attributes
    ----------
    model, data, settings : the model, the client's data and the section `dance`
    round, model_id : round and fingerprint of the model, recorded in the packs
    smooth : what is done to the deployed probabilities of all nodes, [n, C] -> [n, C]; None =
        nothing
    """

    model: DanceModel
    data: ClientData
    settings: DanceConfig
    round: int = 0
    model_id: str = ""
    smooth: Callable[[Float[Tensor, "n C"]], Float[Tensor, "n C"]] | None = None

    @torch.no_grad()
    def explain(self, nodes: Int64[Tensor, "m"], graph: LocalGraph | None = None) -> Packs:
        """Return the evidence packs of any nodes: gate, select, fuse and predict (Alg. 3).

        Parameters
        ----------
        nodes : [m] int64 local nodes
        graph : the graph to read, for packs as a training round writes them; None = the whole local
            graph, and every stage of the prediction
        """
        all_nodes = {} if graph else self._stages_of_all_nodes(nodes)
        hidden, candidates = self._candidates(nodes, graph or self.data.graph)
        evidence = condense_text(self.model, hidden, candidates, self.data.table, self.settings)
        return self.packs(hidden, candidates, evidence, self.round, all_nodes)

    def candidates(self, nodes: Int64[Tensor, "m"]) -> Candidates:
        """Return what `explain` chose the evidence of these nodes from.

        Nodes among them with a gate of 0 were rejected.
        """
        return self._candidates(nodes, self.data.graph)[1]

    @torch.no_grad()
    def packs(
        self,
        hidden: Float[Tensor, "m h"],
        candidates: Candidates,
        evidence: Evidence,
        difficulty_round: int,
        all_nodes: Mapping[str, Float[Tensor, "m C"]] | None = None,
    ) -> Packs:
        """Return the packs of evidence that was selected for the nodes of `candidates`.

        The stage "fused" rests on the evidence, "plain" on `hidden`. "core" and "smoothed" need the
        predictions of all n nodes: without `all_nodes` they are left out, and so is "deployed"
        where it needs "core".

        Parameters
        ----------
        hidden : [m, h] g_v of the nodes
        difficulty_round : as in `Packs`
        all_nodes : [m, C] probabilities of the stages that need all nodes, by name
        """
        labels = label_evidence(self.model, candidates, evidence, self.data)
        logits = logit_parts(self.model, hidden, evidence.fused_text, labels)
        stages = self._stages(hidden, logits, all_nodes or {})
        *_, last = stages.values()
        best, rival = two_best_classes(last)
        gaps = None
        if self.model.head_labels is not None:
            weight = self.model.head_labels.weight
            gaps = weight[best] - weight[rival]
        arrays = {
            "nodes": candidates.nodes,
            "probs": torch.stack([*stages.values()]),
            "rival": rival,
            "parts": log_odds(logits, best, rival),
            **_neighbour_arrays(self.data, candidates, evidence, gaps),
            **_chunk_arrays(self.data, candidates, evidence),
        }
        return Packs(
            round=self.round,
            model_id=self.model_id,
            difficulty_round=difficulty_round,
            views=tuple(self._views),
            stages=tuple(stages),
            **{name: array.detach().cpu().numpy() for name, array in arrays.items()},
        )

    @property
    def _views(self) -> list[str]:
        return self.settings.views.split("+")

    def _stages(
        self,
        hidden: Float[Tensor, "m h"],
        logits: Float[Tensor, "5 m C"],
        all_nodes: Mapping[str, Float[Tensor, "m C"]],
    ) -> dict[str, Float[Tensor, "m C"]]:
        """Return the probabilities of every known stage, in the order of `STAGES`."""
        probs = {FUSED: torch.softmax(logits.sum(0), dim=1), **all_nodes}
        if "plain" in self._views:
            probs["plain"] = torch.softmax(self.model.graph_logits(hidden), dim=1)
        if probs.keys() >= {*self._views}:
            probs[DEPLOYED] = mean_of(probs, self._views)
        return {stage: probs[stage] for stage in STAGES if stage in probs}

    def _candidates(
        self, nodes: Int64[Tensor, "m"], graph: LocalGraph
    ) -> tuple[Float[Tensor, "m h"], Candidates]:
        """Return g_v of these nodes, and the candidates of their evidence."""
        model, data, settings = self.model, self.data, self.settings
        with torch.no_grad():
            plain = survey(model, data, graph)
            difficulty = trained_prediction(model, data, graph, settings, plain).difficulty
            hidden, hops = embed(model, data, graph, nodes), graph.hops(settings.fan_out)
            return hidden, select_candidates(
                model, nodes, hidden, difficulty, hops, data.table, settings
            )

    def _stages_of_all_nodes(self, nodes: Int64[Tensor, "m"]) -> dict[str, Float[Tensor, "m C"]]:
        """Return "core" and "smoothed" of these nodes where they are deployed."""
        if self.smooth is None and "core" not in self._views:
            return {}
        everyone = torch.arange(self.data.num_nodes, device=self.data.device)
        views = predict_nodes(self.model, self.data, self.settings, everyone)
        stages = {"core": views["core"][nodes]} if "core" in views else {}
        if self.smooth is not None:
            stages[SMOOTHED] = self.smooth(views[DEPLOYED])[nodes]
        return stages


def logit_parts(
    model: DanceModel,
    hidden: Float[Tensor, "m h"],
    text: Float[Tensor, "m d"],
    labels: Float[Tensor, "m C2"] | None,
) -> Float[Tensor, "5 m C"]:
    """O = b + prior + Dec(N W_g g) + Dec(N gated text) + W_y [y_1 || y_2], by `PARTS`; [5, m, C].

    The five parts add up to `fused_logits` without dropout. g itself reads texts: those of the
    neighbourhood, unselected.

    Parameters
    ----------
    labels : [y_1 || y_2], `inference.neighbour_labels`; None = no label evidence
    """
    # LN(s) = w (s - mean(s)) / sigma(s) + b' is linear in s once sigma is known.
    # N is this linear part: both terms are divided by the sigma of their sum, so that the parts are
    # exact and need no method of attribution.
    norm, head = model.norm, model.head_fused
    graph, gated = (
        part - part.mean(dim=1, keepdim=True)
        for part in (model.fuse_graph(hidden), model.gated_text(hidden, model.read(text)))
    )
    sigma = ((graph + gated).square().mean(dim=1, keepdim=True) + norm.eps).sqrt()
    linear = [F.linear(part / sigma * norm.weight, head.weight) for part in (graph, gated)]
    constant, zero = head(norm.bias).expand_as(linear[0]), torch.zeros_like(linear[0])
    prior = zero if model.prior is None else model.prior.expand_as(zero)
    of_labels = zero
    if labels is not None and model.head_labels is not None:
        of_labels = model.head_labels(labels)
    return torch.stack([constant, prior, *linear, of_labels])


def two_best_classes(
    probs: Float[Tensor, "m C"],
) -> tuple[Int64[Tensor, "m"], Int64[Tensor, "m"]]:
    """Return the classes of the largest and of the second largest probability; [m] each.

    Examples
    --------
    >>> two_best_classes(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]]))
    (tensor([1, 0]), tensor([2, 1]))
    """
    best = probs.argmax(dim=1, keepdim=True)  # the lower class of two equal ones
    rival = probs.scatter(1, best, -inf).argmax(dim=1)
    return best.squeeze(1), rival


def log_odds(
    logits: Float[Tensor, "P m C"], best: Int64[Tensor, "m"], rival: Int64[Tensor, "m"]
) -> Float[Tensor, "m P"]:
    """Return O_{v,best} - O_{v,rival} of each part of the logits; [m, P].

    Examples
    --------
    >>> logits = torch.tensor([[[1.0, 3.0, 2.0]], [[0.0, 0.5, 0.0]]])  # two parts of one node
    >>> log_odds(logits, torch.tensor([1]), torch.tensor([2]))
    tensor([[1.0000, 0.5000]])
    """
    of_best, of_rival = (
        logits.gather(2, classes.expand(len(logits), -1)[..., None]).squeeze(2)
        for classes in (best, rival)
    )
    return (of_best - of_rival).T


def label_effects(
    gaps: Float[Tensor, "m C2"] | None,
    rows: Int64[Tensor, "E"],
    hops: Int64[Tensor, "E"],
    labels: Int64[Tensor, "E"],
    weights: Float[Tensor, "E"],
) -> Float[Tensor, "E"]:
    """Return alpha^(l) (W_y[c, (l, y)] - W_y[r, (l, y)]) of labelled neighbours, else 0; [E].

    The effects of the neighbours of a node add up to its part "labels".

    Parameters
    ----------
    gaps : [m, 2C] W_y[c] - W_y[r] of each node; None = no label evidence
    rows, hops, labels : [E] int64, row of the node, hop l, training label y or -1
    weights : [E] alpha^(l)

    Examples
    --------
    >>> gaps = torch.tensor([[0.5, -1.0, 2.0, 0.0]])  # two classes, hop 1 then hop 2
    >>> hops, labels = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, -1, 0])
    >>> label_effects(gaps, torch.zeros(4).long(), hops, labels, torch.full((4,), 0.5))
    tensor([ 0.0000, -0.5000,  0.0000,  1.0000])
    """
    counts = (hops > 0) & (labels >= 0)
    if gaps is None or not bool(counts.any()):
        return torch.zeros_like(weights)
    classes = gaps.size(1) // 2
    columns = ((hops - 1) * classes + labels).clamp(min=0)
    return torch.where(counts, weights * gaps[rows, columns], 0.0)


def _neighbour_arrays(
    data: ClientData,
    candidates: Candidates,
    evidence: Evidence,
    gaps: Float[Tensor, "m C2"] | None,
) -> dict[str, Tensor]:
    """Return the arrays of `Packs` about the selected neighbours, node by node."""
    selected = torch.cat([gate > 0 for gate in evidence.gates])
    rows = torch.cat([ragged.rows() for ragged in candidates.hops])[selected]
    nodes = torch.cat([ragged.index for ragged in candidates.hops])[selected]
    hops = torch.cat([torch.full_like(candidates.hops[hop].index, hop) for hop in HOPS])[selected]
    # Entries come hop by hop; a stable sort by row keeps that order within each node.
    order = torch.sort(rows, stable=True).indices
    rows, nodes, hops = rows[order], nodes[order], hops[order]
    weights = torch.cat(evidence.gates)[selected][order]
    labels = torch.where(hops > 0, data.train_labels[nodes], -1)
    if gaps is None:
        labels = torch.full_like(labels, -1)
    return {
        "neighbour_ptr": ptr_of_rows(rows, len(candidates.nodes)),
        "neighbours": nodes,
        "neighbour_hops": hops,
        "neighbour_weights": weights,
        "neighbour_labels": labels,
        "neighbour_effects": label_effects(gaps, rows, hops, labels, weights),
    }


def _chunk_arrays(data: ClientData, candidates: Candidates, evidence: Evidence) -> dict[str, Any]:
    """Return the arrays of `Packs` about the selected chunks, those of a node heaviest first."""
    selected = evidence.chunk_weights > 0
    chunks, weights = candidates.chunks.keep(selected), evidence.chunk_weights[selected]
    by_weight = torch.sort(weights, descending=True, stable=True).indices
    order = by_weight[torch.sort(chunks.rows()[by_weight], stable=True).indices]
    chunks = Ragged(chunks.ptr, chunks.index[order])
    numbers = chunks.index.cpu().numpy()
    return {
        "chunk_ptr": chunks.ptr,
        "chunks": chunks.index,
        "chunk_nodes": data.table.node_of_chunk[chunks.index],
        "chunk_weights": weights[order],
        "chunk_spans": torch.as_tensor(data.bank.spans[numbers]),
        "chunk_sha256": torch.as_tensor(data.chunk_sha256[numbers]),
    }


def make_packs(
    model: DanceModel,
    data: ClientData,
    hidden: Float[Tensor, "m h"],
    candidates: Candidates,
    evidence: Evidence,
    settings: DanceConfig,
    round_: int,
    model_id: str,
    difficulty_round: int,
) -> Packs:
    """Return `Explainer.packs` of evidence that a training round selected."""
    explainer = Explainer(model, data, settings, round_, model_id)
    return explainer.packs(hidden, candidates, evidence, difficulty_round)
