"""Evidence of the nodes that validations ask for, kept from one node condensation to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import evidence_of, label_evidence, with_mean
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import embed
from dance_flwr.disk import read_npz
from dance_flwr.nn.ragged import rows_at

_NODES, _TEXT, _LABELS, _DIFFICULTY = "kept_nodes", "kept_text", "kept_labels", "difficulty"


@dataclass(frozen=True)
class KeptEvidence:
    """What the fused view of m nodes reads beside their g_v.

    Attributes
    ----------
    nodes : [m] int64
    text : [m, d] mix * t~_v + (1 - mix) * c_v
    labels : [m, 2 C] label evidence; None for a model that does not read it
    """

    nodes: Int64[Tensor, "m"]
    text: Float[Tensor, "m d"]
    labels: Float[Tensor, "m C2"] | None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file that holds this."""
        found = {_NODES: self.nodes, _TEXT: self.text, _LABELS: self.labels}
        return {name: part.cpu().numpy() for name, part in found.items() if part is not None}


@dataclass(frozen=True)
class Survey:
    """What a validation reads of the last node condensation.

    Attributes
    ----------
    difficulty : [n] float32 u_v of the model that condensed, which preselects evidence at hop 2
    kept : what the same model selected for the nodes of a validation; None = nothing was kept
    """

    difficulty: Float[Tensor, "n"]
    kept: KeptEvidence | None

    @classmethod
    def read(cls, path: Path, device: torch.device) -> "Survey | None":
        """Return what the file of a survey holds; None if it is damaged."""
        found = read_npz(path)
        if found is None or _DIFFICULTY not in found:
            return None
        tensors = {name: torch.as_tensor(array, device=device) for name, array in found.items()}
        kept = None
        if {_NODES, _TEXT} <= tensors.keys():
            kept = KeptEvidence(tensors[_NODES], tensors[_TEXT], tensors.get(_LABELS))
        return cls(tensors[_DIFFICULTY], kept)


@torch.no_grad()
def keep_evidence(
    model: DanceModel,
    data: ClientData,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "n h"],
    difficulty: Float[Tensor, "n"],
    settings: DanceConfig,
) -> Mapping[str, NDArray[Any]]:
    """Select the evidence of `nodes` (Alg. 3); return it as arrays, none if no view can reuse it.

    Until the next condensation, validations fuse it with the g_v of the newest model. Nothing is
    kept for "core", which reads x_v of every node, nor in inductive mode, where a validation reads
    another graph.

    Parameters
    ----------
    hidden, difficulty : g_v and u_v of all nodes, of the model that condenses
    """
    chosen = settings.views.split("+")
    if data.inductive or "fused" not in chosen or "core" in chosen or not nodes.numel():
        return {}
    g, text, labels = rows_at(hidden, nodes), [], []
    for candidates, evidence in evidence_of(
        model, data, data.graph, nodes, g, difficulty, settings
    ):
        text.append(evidence.fused_text)
        near = label_evidence(model, candidates, evidence, data)
        labels += [] if near is None else [near]
    return KeptEvidence(nodes, torch.cat(text), torch.cat(labels) if labels else None).arrays()


@torch.no_grad()
def predict_kept(
    model: DanceModel, data: ClientData, settings: DanceConfig, kept: KeptEvidence
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the deployed views of `kept.nodes` and their mean, as `inference.predict_nodes` does,
    from evidence that was selected before.
    """
    hidden = embed(model, data, data.graph, kept.nodes, again=True)
    logits = {"plain": model.graph_logits(hidden)}
    logits["fused"] = model.fused_logits(model.fuse(hidden, kept.text), kept.labels)
    chosen = settings.views.split("+")
    return with_mean({name: logits[name] for name in chosen}, chosen)
