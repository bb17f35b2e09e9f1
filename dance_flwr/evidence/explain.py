"""Evidence packs of any node, with what is predicted of it and why."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, condense_text, select_candidates
from dance_flwr.dance.inference import label_evidence, mean_of, predict_nodes, trained_prediction
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import embed, survey
from dance_flwr.evidence.explanation import DEPLOYED, FUSED, SMOOTHED, Explanation, logit_parts
from dance_flwr.evidence.pack import Packs


@torch.no_grad()
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
    others: Mapping[str, Float[Tensor, "m C"]] | None = None,
) -> Packs:
    """Return evidence packs of the candidates' nodes, with their predictions by stage.

    "fused" rests on the evidence, "plain" on `hidden`. "core" and "smoothed" read the predictions
    of all n nodes; without `others` they are left out, and so is "deployed" where it needs "core".

    Parameters
    ----------
    hidden : [m, h] g_v of `candidates.nodes`
    difficulty_round : as in `Packs`
    others : [m, C] probabilities of the stages that read all nodes
    """
    near = label_evidence(model, candidates, evidence, data)
    logits = logit_parts(model, hidden, evidence.fused_text, near)
    known = {FUSED: torch.softmax(logits.sum(0), dim=1), **(others or {})}
    chosen = settings.views.split("+")
    if "plain" in chosen:
        known["plain"] = torch.softmax(model.graph_logits(hidden), dim=1)
    if known.keys() >= {*chosen}:
        known[DEPLOYED] = mean_of(known, chosen)
    explanation = Explanation.of(model, tuple(chosen), known, logits)
    return Packs.of(data, explanation, candidates, evidence, round_, model_id, difficulty_round)


@torch.no_grad()
def explain(
    model: DanceModel,
    data: ClientData,
    nodes: Int64[Tensor, "m"],
    settings: DanceConfig,
    round_: int,
    model_id: str,
    graph: LocalGraph | None = None,
    smooth: Callable[[Float[Tensor, "n C"]], Float[Tensor, "n C"]] | None = None,
) -> Packs:
    """Return evidence packs of any local nodes under this model: gate, select, fuse, predict.

    Parameters
    ----------
    nodes : [m] int64
    graph : the graph to read, for packs as a training round writes them; None = the whole local
        graph, and every stage of the prediction
    smooth : what is done to the deployed probabilities of all nodes; None = nothing
    """
    others = {} if graph else _whole_stages(model, data, nodes, settings, smooth)
    hidden, candidates = _gathered(model, data, nodes, settings, graph or data.graph)
    evidence = condense_text(model, hidden, candidates, data.table, settings)
    return make_packs(
        *(model, data, hidden, candidates, evidence, settings, round_, model_id, round_), others
    )


def considered(
    model: DanceModel, data: ClientData, nodes: Int64[Tensor, "m"], settings: DanceConfig
) -> Candidates:
    """Return where the evidence of `explain` was chosen from; what got a gate of 0 was rejected."""
    return _gathered(model, data, nodes, settings, data.graph)[1]


@torch.no_grad()
def _gathered(
    model: DanceModel,
    data: ClientData,
    nodes: Int64[Tensor, "m"],
    settings: DanceConfig,
    graph: LocalGraph,
) -> tuple[Float[Tensor, "m h"], Candidates]:
    """Return g_v of these nodes, and the candidates of their evidence."""
    everywhere = survey(model, data, graph)
    difficulty = trained_prediction(model, data, graph, settings, everywhere).difficulty
    hidden = embed(model, data, graph, nodes)
    hops = graph.hops(settings.fan_out)
    return hidden, select_candidates(model, nodes, hidden, difficulty, hops, data.table, settings)


def _whole_stages(
    model: DanceModel,
    data: ClientData,
    nodes: Int64[Tensor, "m"],
    settings: DanceConfig,
    smooth: Callable[[Float[Tensor, "n C"]], Float[Tensor, "n C"]] | None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return "core" and "smoothed" of these nodes where they are deployed; read all n nodes."""
    if smooth is None and "core" not in settings.views.split("+"):
        return {}
    everyone = torch.arange(data.num_nodes, device=data.device)
    views = predict_nodes(model, data, settings, everyone)
    found = {name: views[name][nodes] for name in ("core",) if name in views}
    return found if smooth is None else found | {SMOOTHED: smooth(views[DEPLOYED])[nodes]}
