"""Masks of torch-geometric's GNNExplainer as a source of chunks in the faithfulness study."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer, GNNExplainer

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.model import DanceModel
from dance_flwr.evidence.explain import Explainer as EvidenceExplainer
from dance_flwr.evidence.pool import Pool
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.ragged import rows_at
from dance_flwr.seeding import seeded

STEPS = 100  # of a node, the default of torch-geometric; 0.08 core seconds with GCN
_TIE = 1e-6  # lets the weight in a node's text decide between chunks of one node only


def masked_chunks(
    explainer: EvidenceExplainer, seed: int, pool: Pool, steps: int = STEPS
) -> Tensor:
    """Return the mask of each chunk's node, and between chunks of a node their weight in t_u; [E].

    Masks are of nodes ("object"), optimised for p(y^ | v) of the plain view, which reads the nodes
    around v. They multiply x^ = LN(t_u): 0 stands for a node without text, as when its chunks are
    removed from the bank. A node that the view does not read has 0.

    Parameters
    ----------
    seed : of the first masks
    """
    data, rows = explainer.data, pool.chunks.rows()
    weights, owner = torch.zeros(len(pool.chunks.index)), data.table.node_of_chunk
    # Only masks are optimised, and the client's model keeps its gradients.
    frozen = deepcopy(explainer.model).requires_grad_(False)
    with seeded(seed, "gnn-explainer", client=data.card.client):
        for row, node in enumerate(pool.nodes):
            near, mask = node_mask(frozen, data, node, steps)
            everyone = torch.zeros(data.num_nodes).index_copy(0, near.cpu(), mask.cpu())
            of_row = (rows == row).cpu()
            weights[of_row] = everyone[owner[pool.chunks.index].cpu()[of_row]]
    in_texts = data.table.weights_in_texts(data.table.chunks_of, torch.float32)
    ties = in_texts[pool.chunks.index].cpu()
    return ((1 - _TIE) * weights.double() + _TIE * ties.double()).to(data.device)


def node_mask(
    model: DanceModel, data: ClientData, node: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Return the nodes that the plain view reads for a node, and masks in [0, 1]; [b] each."""
    backbone = model.backbone
    ball = data.graph.around(backbone.operator, node.view(1), backbone.reach)
    features = normalise(rows_at(data.table.nodes, ball.nodes))
    explainer = Explainer(
        _Around(model, ball.operators),
        GNNExplainer(epochs=steps),
        explanation_type="model",
        node_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "log_probs",
        },
    )
    # The masks are optimised, whatever the caller does without gradients.
    nowhere = torch.zeros(2, 0, dtype=torch.int64, device=features.device)
    with torch.enable_grad():
        return ball.nodes, explainer(features, nowhere, index=0).node_mask[:, 0]


class _Around(nn.Module):
    """log p(y | v) of the plain view from x^ of the nodes around v; [b, d] -> [1, C].

    The edges are in the steps.
    """

    def __init__(self, model: DanceModel, steps: Sequence[Tensor]) -> None:
        super().__init__()
        self.model, self._steps = model, steps

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        backbone = self.model.backbone
        split = backbone.reach - backbone.hops_left
        first = backbone.spread(backbone.project(x), self._steps[:split])
        hidden = backbone.finish(first, self._steps[split:])
        return torch.log_softmax(self.model.graph_logits(hidden), dim=1)
