"""`GraphModel`: the model at one graph as a torch module, which torch-geometric can explain."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from dance_flwr.api.bundle import Bundle
from dance_flwr.client_data.agreement import agreeing_edges
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.edge_weights import product
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import AGREEMENT
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import DEPLOYED, condense_in_blocks, trained_prediction, views_of
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction
from dance_flwr.dance.passes import Reader
from dance_flwr.dance.selection import Selection
from dance_flwr.errors import UserError, unknown
from dance_flwr.federation.client.client import Client
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.message_passing import compiled_nowhere
from dance_flwr.nn.propagation import edge_weights
from dance_flwr.nn.ragged import Ragged, ptr_of_rows

if TYPE_CHECKING:
    from torch_geometric.data import Data

VIEWS = ("deployed", "plain")


class Step(MessagePassing):  # type: ignore[misc]  # torch-geometric has no types
    """One propagation step P h as messages w_ij h_j, which torch-geometric's masks reach."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, hidden: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        """[n, w], [2, E], [E] -> [n, w]."""
        return self.propagate(edge_index, x=hidden, weight=weight)  # type: ignore[no-any-return]

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        """w_ij h_j; [E, w]."""
        return weight[:, None] * x_j


_Step = compiled_nowhere(Step)


class _Operator:
    """Steps behind the sign that backbones use, `operator @ hidden`: one after the other."""

    def __init__(self, steps: Sequence[nn.Module], edge_index: Tensor, weight: Tensor) -> None:
        self._steps, self._edges = cycle(steps), (edge_index, weight)

    def __matmul__(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, next(self._steps)(hidden, *self._edges))


@dataclass(frozen=True)
class _View:
    """A `ClientView` of the features and edges that a forward pass was given."""

    num_nodes: int
    device: torch.device
    table: TextTable
    label_table: Tensor


class GraphModel(nn.Module):
    """log p(y | v) of every node, as a function of features and edges; `Predictor.at` makes one.

    `forward(x, edge_index)` gives [n, C] log-probabilities. x^ = `model.x` are the layer-normalised
    texts: 0 is a node without text, so that a mask of nodes that multiplies x^ takes texts away.
    Masks of edges weigh messages, as in torch-geometric's layers.

    View "plain" is the graph network alone. It is differentiable, so that any explainer of
    torch-geometric can explain it. View "deployed" is what the model predicts, before smoothing and
    calibration: evidence is selected anew from what x and `edge_index` leave, which has no
    gradient. `DanceExplainer` explains either by the gates of that evidence.

    Attributes
    ----------
    x : [n, d] float32; edge_index : [2, E] int64, both directions of every edge
    ids : of the nodes; class_names : of the model
    view : "deployed" or "plain"
    """

    x: Tensor
    edge_index: Tensor

    def __init__(
        self,
        model: DanceModel,
        settings: DanceConfig,
        data: ClientData,
        *,
        view: str = "deployed",
        ids: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if view not in VIEWS:
            raise UserError(unknown("view", [view], VIEWS))
        if (kind := model.backbone.operator) == "loops":
            raise UserError(
                "model: expected a backbone that propagates by a weighted sum, found one of "
                f"attention ({type(model.backbone).__name__.lower()}, operator {kind!r})"
            )
        # A copy: what an explainer sets on a module must not reach the client's.
        self.model, self.view = deepcopy(model).eval().requires_grad_(False), view
        self.settings, self.ids, self.class_names = settings, list(ids), data.card.class_names
        self.steps = nn.ModuleList(_Step() for _ in range(model.backbone.reach))
        table = data.table
        chunks_of = Ragged(table.chunks_of.ptr.clone(), table.chunks_of.index.clone())
        # In memory, as the client's folder may be temporary.
        self._table = TextTable(
            table.chunks.float().clone(), chunks_of, table.nodes.float().clone()
        )
        self._labels = data.label_table.clone()
        self._gated = data.reading.edge_gates == AGREEMENT
        self._temperature = data.reading.edge_temperature
        self._weight_gates = data.weight_gates
        rows, cols = data.graph.edges()
        self.register_buffer("x", normalise(self._table.nodes))
        self.register_buffer("edge_index", torch.stack([cols, rows]))
        self.eval()

    def train(self, mode: bool = True) -> "GraphModel":
        """Keep evaluation mode: the model is explained here, not trained."""
        return super().train(False)

    @classmethod
    def of(cls, bundle: Bundle, client: Client, view: str = "deployed") -> "GraphModel":
        """Return the model of a bundle at the data of a client, in memory.

        Raises
        ------
        UserError : the method is not DANCE, or there is no such view
        """
        if not isinstance(client.model, DanceModel):
            raise UserError(
                f"model: expected one of method 'dance', found {bundle.config.method!r}, which has "
                "no gates"
            )
        settings, data = DanceConfig.of(bundle.config), client.data
        return cls(client.model, settings, data, view=view, ids=data.ids())

    @property
    def data(self) -> "Data":
        """The graph as `torch_geometric.data.Data`: x, edge_index and ids."""
        from torch_geometric.data import Data

        return Data(x=self.x, edge_index=self.edge_index, ids=self.ids)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return log p(y | v) of the view; [n, d], [2, E] -> [n, C]."""
        hidden = self._hidden(x, edge_index)
        if self.view == "plain":
            return torch.log_softmax(self.model.graph_logits(hidden), dim=1)
        with torch.no_grad():
            reader, difficulty = self._reader(x, edge_index, hidden)
            return views_of(reader, reader.everyone, hidden, difficulty)[DEPLOYED].log()

    @torch.no_grad()
    def evidence(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> list[Selection]:
        """Return what evidence of these nodes is selected, in blocks of them.

        Parameters
        ----------
        nodes : [m] int64, distinct
        """
        hidden = self._hidden(x, edge_index)
        reader, difficulty = self._reader(x, edge_index, hidden)
        return list(condense_in_blocks(reader, nodes, hidden[nodes], difficulty))

    def _hidden(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self._check(x, edge_index)
        # The operator adds the loops that it needs.
        edges = edge_index[:, edge_index[0] != edge_index[1]]
        rows, order = self._rows(edges, len(x))
        entries = edge_weights(self.model.backbone.operator, rows.ptr, self._gates(rows))
        place = torch.arange(len(order), device=x.device)
        weight = torch.empty(len(order), device=x.device)
        # In the order of the edges, which is that of torch-geometric's masks.
        weight[order] = entries.of(rows.rows(), rows.index, place)
        if entries.loops is not None:
            every = torch.arange(len(x), device=x.device)
            edges = torch.cat([edges, every.expand(2, -1)], dim=1)
            weight = torch.cat([weight, entries.loops])
        operator = cast(Any, _Operator(list(self.steps), edges, weight))
        return cast(Tensor, self.model.backbone.propagate(x, operator))

    def _check(self, x: Tensor, edge_index: Tensor) -> None:
        n, d = self.x.shape
        if x.shape != self.x.shape or edge_index.ndim != 2 or edge_index.size(0) != 2:
            raise UserError(
                f"expected x of [{n}, {d}] and edge_index of [2, E], as model.x and "
                f"model.edge_index, found {list(x.shape)} and {list(edge_index.shape)}"
            )

    def _rows(self, edges: Tensor, size: int) -> tuple[Ragged, Tensor]:
        order = torch.argsort(edges[1] * size + edges[0])
        return Ragged(ptr_of_rows(edges[1][order], size), edges[0][order]), order

    def _gates(self, rows: Ragged) -> Tensor | None:
        """Return the weights of these edges, the data's times agreement of full texts; None = 1."""
        weights = None if self._weight_gates is None else self._weight_gates.at(rows)
        if not self._gated:
            return weights
        return product(agreeing_edges(self._table.nodes, rows, self._temperature), weights)

    def _edge_mask(self, edges: int) -> Tensor | None:
        step = self.steps[0]
        mask = getattr(step, "_edge_mask", None)
        if mask is None or not step.explain:
            return None
        mask = mask.sigmoid() if step._apply_sigmoid else mask
        return mask if len(mask) == edges else None

    def _reader(self, x: Tensor, edge_index: Tensor, hidden: Tensor) -> tuple[Reader, Tensor]:
        """Return the model at the graph that x and `edge_index` leave, and u_v of every node."""
        inside = edge_index[0] != edge_index[1]
        mask = self._edge_mask(edge_index.size(1))
        # An edge of weight 0 offers no candidates.
        inside = inside if mask is None else inside & (mask > 0)
        rows, order = self._rows(edge_index[:, inside], len(x))
        gates = self._gates(rows)
        if mask is not None:
            weights = mask[inside][order]
            gates = product(gates, weights)
        whole = self.x.square().sum(1)
        # A mask multiplies x^: what is left of a text is the projection on the whole.
        left = torch.where(whole > 0, (x * self.x).sum(1) / whole.clamp(min=1e-12), 1.0).clamp(0, 1)
        table = self._table
        chunks = table.chunks * left[table.node_of_chunk, None]
        visible = torch.ones(len(x), dtype=torch.bool, device=x.device)
        view = _View(
            len(x),
            x.device,
            TextTable(chunks, table.chunks_of, table.nodes * left[:, None]),
            self._labels,
        )
        reader = Reader(self.model, view, self.settings, LocalGraph(rows, visible, gates=gates))
        plain = Prediction.of(hidden, torch.softmax(self.model.graph_logits(hidden), dim=1))
        return reader, trained_prediction(reader, plain).difficulty
