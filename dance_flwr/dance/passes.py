"""Passes of the backbone over the original graph: of all nodes, of some, and in blocks."""

from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data import inputs as derived
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.neighbourhood import Neighbourhood
from dance_flwr.nn.ragged import rows_at

_MOST_IN_ONE_PASS = 65_536
_MOST_KEPT = 16_384  # rows of inputs: 25 MB at a width of 384


class GraphView(Protocol):
    """What inference reads of a `LocalGraph`."""

    def hops(self, fan_out: int = 0) -> HopLists:
        """1-hop and 2-hop neighbourhoods, at most `fan_out` neighbours a node; 0 = all."""
        ...

    def operator(self, kind: str) -> Tensor:
        """Return the [n, n] propagation operator."""
        ...


class ClientView(Protocol):
    """What inference reads of a `ClientData`."""

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
def plain_pass(model: DanceModel, data: ClientView, graph: GraphView) -> Prediction:
    """Return g_v = z_v and p(y | v) of every node: one pass of the model over an original graph.

    Texts are read in blocks, as those of a large client are float16 in a mapped file.
    """
    model.eval()
    backbone, blocks = model.backbone, torch.split(data.table.nodes, _MOST_IN_ONE_PASS)
    projected = torch.cat([backbone.project(normalise(texts.float())) for texts in blocks])
    hidden = backbone.propagate_projected(projected, graph.operator(backbone.operator))
    return Prediction.of(hidden, torch.softmax(model.graph_logits(hidden), dim=1))


@torch.no_grad()
def embed(
    model: DanceModel,
    data: ClientData,
    graph: LocalGraph,
    nodes: Int64[Tensor, "m"],
    *,
    again: bool = False,
) -> Float[Tensor, "m h"]:
    """Return g_v of these distinct nodes; reads them and their neighbours alone.

    Parameters
    ----------
    again : whether the same nodes will be asked for again, so that their surroundings are kept, and
        what is read of them if that is at most 16,384 rows
    """
    model.eval()
    backbone = model.backbone
    table = data.inputs(graph, backbone)

    def surroundings() -> tuple[Neighbourhood, Tensor | None]:
        ball = graph.around(backbone.operator, nodes, backbone.hops_left)
        keeps = again and ball.nodes.numel() <= _MOST_KEPT
        return ball, rows_at(table, ball.nodes) if keeps else None

    if again:
        read = graph.name, type(backbone), backbone.operator, backbone.hops_left
        key = (*read, nodes.cpu().numpy().tobytes())
        ball, kept = data.cached("surroundings", key, surroundings)
    else:
        ball, kept = surroundings()
    inputs = rows_at(table, ball.nodes) if kept is None else kept
    return backbone.finish(backbone.start(inputs), ball.operators)  # type: ignore[no-any-return]


@torch.no_grad()
def survey(model: DanceModel, data: ClientData, graph: LocalGraph) -> Prediction:
    """Return `plain_pass` of a client, in blocks whose memory does not grow with n.

    The first layer of every node is kept in a scratch file, so that no node is read twice.
    """
    model.eval()
    backbone, inputs = model.backbone, data.inputs(graph, model.backbone)
    every = torch.arange(data.num_nodes, device=data.device)
    if data.num_nodes <= _MOST_IN_ONE_PASS:
        steps = [graph.operator(backbone.operator)] * backbone.hops_left
        hidden = backbone.finish(backbone.start(rows_at(inputs, every)), steps)
        return Prediction.of(hidden, torch.softmax(model.graph_logits(hidden), dim=1))
    blocks = torch.split(every, _MOST_IN_ONE_PASS // 8)
    width = backbone.start(rows_at(inputs, every[:1])).size(1)
    first = derived.scratch(data.folder, (data.num_nodes, width))
    hidden = derived.scratch(data.folder, (data.num_nodes, model.head_graph.in_features))
    for block in blocks:
        first[block.to(first.device)] = backbone.start(rows_at(inputs, block)).to(first)
    # Before the loop: what outlives a block would split the memory that the next one needs.
    predicted = torch.empty_like(every)
    confidence, difficulty = torch.empty(2, len(every), device=every.device)
    for block in blocks:
        ball = graph.around(backbone.operator, block, backbone.hops_left)
        g = backbone.finish(rows_at(first, ball.nodes), ball.operators)
        hidden[block.to(hidden.device)] = g.to(hidden)
        part = Prediction.of(g, torch.softmax(model.graph_logits(g), dim=1))
        predicted[block], confidence[block] = part.predicted, part.confidence
        difficulty[block] = part.difficulty
    return Prediction(hidden, predicted, confidence, difficulty, model.head_graph.out_features)
