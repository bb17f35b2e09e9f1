"""`DanceExplainer`: DANCE's own selections as an explanation of torch-geometric."""

import logging
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import ExplainerAlgorithm, Explanation
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

from dance_flwr.api.graph_model import GraphModel
from dance_flwr.errors import UserError
from dance_flwr.nn.ragged import Ragged, ptr_of_rows

_LOG = logging.getLogger(__name__)


class DanceExplainer(ExplainerAlgorithm):  # type: ignore[misc]  # torch-geometric has no types
    """Explain a node by the gates alpha of its evidence: masks of nodes and of edges, in [0, 1].

    As `AttentionExplainer` reads the attention of a model that has some, this reads the gates of a
    model that has them: nothing is optimised and nothing is added. It explains a `GraphModel`
    alone, and no other model.

    `node_mask`, [n, 1], is alpha^(l)_{v,u} of the neighbours u that were selected for v, and 1 for
    v itself. `edge_mask`, [E], is the same on every path of l edges that leads from u to v.
    Both are 0 elsewhere, and the largest over v if several nodes are explained at once.

        model = load("bundle").at(graph)
        explainer = Explainer(
            model,
            DanceExplainer(),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config=dict(
                mode="multiclass_classification", task_level="node", return_type="log_probs"
            ),
        )
        explanation = explainer(model.x, model.edge_index, index=7)
    """

    def forward(
        self,
        model: torch.nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **others: Any,
    ) -> Explanation:
        """Return the explanation; the gates do not depend on `target`.

        Raises
        ------
        UserError : the model is no `GraphModel`
        """
        if not isinstance(model, GraphModel):
            raise UserError(
                f"{type(self).__name__}: expected a GraphModel, which Predictor.at(graph) returns, "
                f"found {type(model).__name__}: it has no gates; GNNExplainer explains any model"
            )
        if index is None:
            nodes = torch.arange(len(x), device=x.device)
        else:
            # As in torch, -1 is the last node.
            nodes = torch.unique(torch.as_tensor(index, device=x.device).flatten() % len(x))
        size = len(x)
        near, far, gates = self._gates(model, x, edge_index, nodes)
        masks: dict[str, Tensor] = {}
        if self.explainer_config.node_mask_type is not None:
            mask = x.new_zeros(size)
            mask[nodes] = 1
            for (_, other), gate in zip((near, far), gates, strict=True):
                mask = mask.scatter_reduce(0, other, gate, "amax")
            masks["node_mask"] = mask[:, None]
        if self.explainer_config.edge_mask_type is not None:
            masks["edge_mask"] = _edge_mask(edge_index, size, near, far, gates)
        return Explanation(**masks)

    @staticmethod
    def _gates(
        model: GraphModel, x: Tensor, edge_index: Tensor, nodes: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return (node, neighbour) of hops 1 and 2, and their gates, of what was selected."""
        ends: list[list[tuple[Tensor, Tensor]]] = [[], []]
        gates: list[list[Tensor]] = [[], []]
        for selection in model.evidence(x, edge_index, nodes):
            frozen = selection.frozen()
            for hop in (1, 2):
                rows = frozen.hops[hop]
                ends[hop - 1].append((frozen.nodes[rows.rows()], rows.index))
                gates[hop - 1].append(frozen.gates[hop])
        one, two = (
            (torch.cat(a), torch.cat(b)) for a, b in (zip(*part, strict=True) for part in ends)
        )
        return one, two, (torch.cat(gates[0]), torch.cat(gates[1]))

    def supports(self) -> bool:
        """Whether gates can answer: the prediction of the model, of nodes, by masks of objects."""
        # torch-geometric asks for an error in the log and False, not for an exception.
        config, model = self.explainer_config, self.model_config
        supported = {
            "explanation_type": (config.explanation_type, ExplanationType.model),
            "node_mask_type": (config.node_mask_type or MaskType.object, MaskType.object),
            "task_level": (model.task_level, ModelTaskLevel.node),
            "mode": (model.mode, ModelMode.multiclass_classification),
        }
        for name, (has, needs) in supported.items():
            if has != needs:
                _LOG.error(
                    "%s: expected %s = '%s', found '%s'; gates belong to nodes and edges, and to "
                    "the model's own classes",
                    *(type(self).__name__, name, needs.value, has.value),
                )
                return False
        return True


def _edge_mask(
    edge_index: Tensor,
    size: int,
    near: tuple[Tensor, Tensor],
    far: tuple[Tensor, Tensor],
    gates: tuple[Tensor, Tensor],
) -> Tensor:
    """Return the gates on u -> v of hop 1 and on both edges of each w -> u -> v of hop 2; [E]."""
    source, target = edge_index
    # A number for each edge, by which binary search finds it.
    keys, order = torch.sort(target * size + source)

    def place(to: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edge start -> to of each pair, and whether there is one."""
        wanted = to * size + start
        at = torch.searchsorted(keys, wanted).clamp(max=max(len(keys) - 1, 0))
        return order[at], keys[at] == wanted

    mask = torch.zeros(edge_index.size(1), device=edge_index.device)
    if not len(keys):
        return mask
    edge, exists = place(*near)
    mask = mask.scatter_reduce(0, edge[exists], gates[0][exists], "amax")
    # Each (v, w) of hop 2 with every u that has an edge to v.
    into = Ragged(ptr_of_rows(target[order], size), source[order]).take(far[0])
    v, w, gate = (part[into.rows()] for part in (*far, gates[1]))
    first, exists = place(into.index, w)
    second, _ = place(v, into.index)
    for edge in (first, second):
        mask = mask.scatter_reduce(0, edge[exists], gate[exists], "amax")
    return mask
