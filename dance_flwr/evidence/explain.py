"""Explain predictions: the evidence packs of any nodes of a client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from dance_flwr.evidence.attribution import FusedLogits, label_logits
from dance_flwr.evidence.pack import FUSED, PERSONAL, SMOOTHED, STAGES, Packs
from dance_flwr.nn.calibration import Calibration
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.ragged import Ragged, ptr_of_rows

if TYPE_CHECKING:
    from dance_flwr.nn.mixture import Mixture


@dataclass(frozen=True)
class Explainer:
    """A model and the data of one client, whose predictions it explains.

    Attributes
    ----------
    model, data, settings : the model, the client's data and the section `dance`
    round, model_id : round and fingerprint of the model, recorded in the packs
    smooth : what is done to the deployed probabilities of all nodes, [n, C] -> [n, C]; None =
        nothing
    mixture : the client's own model, which is mixed into what is deployed; None = nothing is
    calibration : of what is deployed, the last stage of packs that read the whole graph
    """

    model: DanceModel
    data: ClientData
    settings: DanceConfig
    round: int = 0
    model_id: str = ""
    smooth: Callable[[Float[Tensor, "n C"]], Float[Tensor, "n C"]] | None = None
    mixture: "Mixture | None" = None
    calibration: Calibration = field(default_factory=Calibration)

    @torch.no_grad()
    def explain(self, nodes: Int64[Tensor, "m"], graph: LocalGraph | None = None) -> Packs:
        """Return the evidence packs of any nodes: gate, select, fuse and predict (Alg. 3).

        Parameters
        ----------
        nodes : [m] int64 local nodes
        graph : the graph to read, for packs as a training round writes them; None = the whole local
            graph, and every stage of the prediction
        """
        # Why not in a training round (decision 16): "core" and smoothing predict all n nodes.
        all_nodes = {} if graph else self._stages_of_all_nodes(nodes)
        if self.mixture is not None and not graph:
            all_nodes[self.mixture.kind] = self.mixture.own[nodes]
        hidden, selection = self._select(nodes, graph or self.data.graph)
        packs = self.packs(hidden, selection, self.round, all_nodes)
        return packs if graph else packs.calibrated(self.calibration)

    def selection(self, nodes: Int64[Tensor, "m"]) -> Selection:
        """Return the evidence of these nodes with all candidates, the rejected ones included."""
        return self._select(nodes, self.data.graph)[1]

    @torch.no_grad()
    def packs(
        self,
        hidden: Float[Tensor, "m h"],
        selection: Selection,
        difficulty_round: int,
        all_nodes: Mapping[str, Float[Tensor, "m C"]] | None = None,
    ) -> Packs:
        """Return the packs of evidence that was selected for the nodes of `selection`.

        The stage "fused" rests on the evidence, "plain" on `hidden`. "core" and "smoothed" need the
        predictions of all n nodes: without `all_nodes` they are left out, and so is "deployed"
        where it needs "core". So are those of a client's own model.

        Parameters
        ----------
        hidden : [m, h] g_v of the nodes
        difficulty_round : as in `Packs`
        all_nodes : [m, C] probabilities of the stages that need all nodes, by name
        """
        client = self._client(self.data.graph)
        fused = FusedLogits(self.model, hidden, condensed_text(client, selection)[1])
        parts = fused.parts(label_evidence(client, selection))
        stages = self._stages(hidden, parts.sum(0), all_nodes or {})
        mixture = self.mixture if self.mixture and self.mixture.kind in stages else None
        if mixture is not None:
            shared = stages.get(SMOOTHED, stages[DEPLOYED])
            stages[PERSONAL] = mixture.of(shared, selection.nodes)
        arrays = {
            "nodes": selection.nodes,
            "probs": torch.stack([*stages.values()]),
            "parts": parts.transpose(0, 1),
            **self._neighbour_arrays(selection, fused),
            **self._chunk_arrays(selection, fused),
        }
        return Packs(
            round=self.round,
            model_id=self.model_id,
            difficulty_round=difficulty_round,
            views=tuple(self._views),
            stages=tuple(stages),
            own_share=mixture.share if mixture is not None else 0.0,
            temperature=1.0,
            **{name: array.detach().numpy() for name, array in moved(arrays, HOST).items()},
        )

    @property
    def _views(self) -> list[str]:
        return self.settings.views.split("+")

    def _stages(
        self,
        hidden: Float[Tensor, "m h"],
        logits: Float[Tensor, "m C"],
        all_nodes: Mapping[str, Float[Tensor, "m C"]],
    ) -> dict[str, Float[Tensor, "m C"]]:
        probs = {FUSED: torch.softmax(logits, dim=1), **all_nodes}
        if "plain" in self._views:
            probs["plain"] = torch.softmax(self.model.graph_logits(hidden), dim=1)
        # A mean of some of the deployed views is not what is deployed.
        if probs.keys() >= {*self._views}:
            probs[DEPLOYED] = mean_of(probs, self._views)
        return {stage: probs[stage] for stage in STAGES if stage in probs}

    def _client(self, graph: LocalGraph) -> DanceClient:
        return DanceClient(self.model, self.data, self.settings, graph)

    @torch.no_grad()
    def _select(
        self, nodes: Int64[Tensor, "m"], graph: LocalGraph
    ) -> tuple[Float[Tensor, "m h"], Selection]:
        client = self._client(graph)
        # Why of this model (decision 20): then the weights of a pack follow from the model it
        # names.
        difficulty = trained_prediction(client, plain_pass_in_blocks(client)).difficulty
        hidden = embed(client, nodes)
        return hidden, condense_text(client, nodes, hidden, difficulty)

    def _stages_of_all_nodes(self, nodes: Int64[Tensor, "m"]) -> dict[str, Float[Tensor, "m C"]]:
        # Both read the predictions of all nodes, so that they are made only where they are
        # deployed.
        if self.smooth is None and "core" not in self._views:
            return {}
        client = self._client(self.data.graph)
        views = predict_nodes(client, client.everyone)
        stages = {"core": views["core"][nodes]} if "core" in views else {}
        if self.smooth is not None:
            stages[SMOOTHED] = self.smooth(views[DEPLOYED])[nodes]
        return stages

    def _neighbour_arrays(self, selection: Selection, fused: FusedLogits) -> dict[str, Tensor]:
        """Return the arrays of `Packs` about the selected neighbours, hop by hop."""
        data, model = self.data, self.model
        selected = torch.cat([gate > 0 for gate in selection.gates])
        rows = torch.cat([ragged.rows() for ragged in selection.hops])[selected]
        nodes = torch.cat([ragged.index for ragged in selection.hops])[selected]
        sizes = [len(ragged.index) for ragged in selection.hops]
        hops = torch.cat([rows.new_full((size,), hop) for hop, size in enumerate(sizes)])[selected]
        # Entries come hop by hop; a stable sort by row keeps that order within each node.
        order = torch.sort(rows, stable=True).indices
        rows, nodes, hops = rows[order], nodes[order], hops[order]
        gates = torch.cat(selection.gates)[selected][order]
        # Hop 0 is the node itself, whose label is never read (decision 7).
        labels = torch.where(hops > 0, data.train_labels[nodes], -1)
        weight = None if model.head_labels is None else model.head_labels.weight
        # A model without label evidence reads no label, and a pack shows none.
        if weight is None:
            labels = torch.full_like(labels, -1)
        # eq:hier_context, summand by summand.
        shares = torch.softmax(model.hop_logits, dim=0)[hops] * gates * (1 - self._mix)
        texts = data.table.nodes[nodes].to(gates.dtype)
        return {
            "neighbour_ptr": ptr_of_rows(rows, len(selection.nodes)),
            "neighbours": nodes,
            "neighbour_hops": hops,
            "neighbour_weights": gates,
            "neighbour_labels": labels,
            "neighbour_label_logits": label_logits(
                weight, hops, labels, gates, model.head_fused.out_features
            ),
            "neighbour_text_logits": fused.of_texts(rows, shares[:, None] * texts),
        }

    def _chunk_arrays(self, selection: Selection, fused: FusedLogits) -> dict[str, Any]:
        """Return the arrays of `Packs` about the selected chunks, by node the heaviest first."""
        data, selected = self.data, selection.chunk_weights > 0
        chunks, weights = selection.chunks.keep(selected), selection.chunk_weights[selected]
        # Two stable sorts, the row last: heaviest first, ties in the order of the candidates.
        by_weight = torch.sort(weights, descending=True, stable=True).indices
        order = by_weight[torch.sort(chunks.rows()[by_weight], stable=True).indices]
        chunks, weights = Ragged(chunks.ptr, chunks.index[order]), weights[order]
        numbers = chunks.index.cpu().numpy()
        # eq:agg_text, summand by summand.
        shares = (self._mix * weights)[:, None] * data.table.chunks[chunks.index].to(weights.dtype)
        return {
            "chunk_ptr": chunks.ptr,
            "chunks": chunks.index,
            "chunk_nodes": data.table.node_of_chunk[chunks.index],
            "chunk_weights": weights,
            "chunk_logits": fused.of_texts(chunks.rows(), shares),
            "chunk_spans": torch.as_tensor(data.bank.spans[numbers]),
            "chunk_sha256": torch.as_tensor(data.chunk_sha256[numbers]),
        }

    @property
    def _mix(self) -> float:
        """Share of the chunks in the text of fusion; the rest is that of whole texts."""
        return 1.0 if self.settings.text_rule == "own" else self.settings.mix
