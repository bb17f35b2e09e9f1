"""Evidence packs of any node, with what is predicted of it and why."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import (
    DEPLOYED,
    label_evidence,
    mean_of,
    predict_nodes,
    trained_prediction,
)
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import DanceClient, embed, plain_pass_in_blocks
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.text import condense_text, condensed_text
from dance_flwr.evidence.explanation import FUSED, SMOOTHED, Explanation, logit_parts
from dance_flwr.evidence.pack import Packs


@torch.no_grad()
def make_packs(
    client: DanceClient,
    hidden: Float[Tensor, "m h"],
    selection: Selection,
    origin: tuple[int, str, int],
    others: Mapping[str, Float[Tensor, "m C"]] | None = None,
) -> Packs:
    """Return evidence packs of the selection's nodes, with their predictions by stage.

    "fused" rests on the evidence, "plain" on `hidden`. "core" and "smoothed" read the predictions
    of all n nodes; without `others` they are left out, and so is "deployed" where it needs "core".

    Parameters
    ----------
    hidden : [m, h] g_v of `selection.nodes`
    origin : round, model_id and difficulty_round, as in `Packs`
    others : [m, C] probabilities of the stages that read all nodes
    """
    model = client.model
    labels = label_evidence(client, selection)
    logits = logit_parts(model, hidden, condensed_text(client, selection)[1], labels)
    known = {FUSED: torch.softmax(logits.sum(0), dim=1), **(others or {})}
    chosen = client.views
    if "plain" in chosen:
        known["plain"] = torch.softmax(model.graph_logits(hidden), dim=1)
    if known.keys() >= {*chosen}:
        known[DEPLOYED] = mean_of(known, chosen)
    explanation = Explanation.of(model, tuple(chosen), known, logits)
    return Packs.of(client.data, explanation, selection, origin)


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
    whole = DanceClient(model, data, settings, data.graph)
    others = {} if graph else _whole_stages(whole, nodes, smooth)
    client = DanceClient(model, data, settings, graph or data.graph)
    hidden, selection = _selected(client, nodes)
    return make_packs(client, hidden, selection, (round_, model_id, round_), others)


def considered(
    model: DanceModel, data: ClientData, nodes: Int64[Tensor, "m"], settings: DanceConfig
) -> Selection:
    """Return where the evidence of `explain` was chosen from; what got a gate of 0 was rejected."""
    return _selected(DanceClient(model, data, settings, data.graph), nodes)[1]


@torch.no_grad()
def _selected(
    client: DanceClient, nodes: Int64[Tensor, "m"]
) -> tuple[Float[Tensor, "m h"], Selection]:
    """Return g_v of these nodes, and their evidence."""
    difficulty = trained_prediction(client, plain_pass_in_blocks(client)).difficulty
    hidden = embed(client, nodes)
    return hidden, condense_text(client, nodes, hidden, difficulty)


def _whole_stages(
    client: DanceClient,
    nodes: Int64[Tensor, "m"],
    smooth: Callable[[Float[Tensor, "n C"]], Float[Tensor, "n C"]] | None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return "core" and "smoothed" of these nodes where they are deployed; read all n nodes."""
    if smooth is None and "core" not in client.views:
        return {}
    views = predict_nodes(client, client.everyone)
    found = {name: views[name][nodes] for name in ("core",) if name in views}
    return found if smooth is None else found | {SMOOTHED: smooth(views[DEPLOYED])[nodes]}
