"""A model with its texts and graph, and its passes over the original graph."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data import inputs as derived
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import COVERAGE, DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Pool, Prediction
from dance_flwr.nn.backbone import Backbone, normalise
from dance_flwr.nn.hops import HopLists
from dance_flwr.nn.model import load_state
from dance_flwr.nn.moving import HOST, content, moved
from dance_flwr.nn.neighbourhood import Neighbourhood
from dance_flwr.nn.propagation import propagated
from dance_flwr.nn.ragged import rows_at

# Why limits (decision 16): the memory of a pass does not grow with the graph.
_MAX_IN_ONE_PASS = 65_536
_MAX_REMEMBERED = 16_384  # rows of inputs: 25 MB at a width of 384
# Why a limit (decision 31): condensing and selecting is 2,500 operations, a tenth of which wait for
# a GPU; a CPU takes longer than that only where a client has more nodes than this.
MAX_DECIDED_ON_HOST = 2_048


class GraphView(Protocol):
    """What inference reads of a `LocalGraph`."""

    def hops(self, fan_out: int = 0) -> HopLists:
        """1-hop and 2-hop neighbourhoods, at most `fan_out` neighbours a node; 0 = all."""

    def operator(self, kind: str) -> Tensor:
        """Return the [n, n] propagation operator."""


class ClientView(Protocol):
    """What inference reads of a `ClientData`."""

    @property
    def num_nodes(self) -> int:
        """Number of local nodes n."""

    @property
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    def table(self) -> TextTable:
        """The text bank."""

    @property
    def label_table(self) -> Tensor:
        """[n, C] one-hot training labels, rows of zeros elsewhere."""


@dataclass(frozen=True)
class Reader:
    """A model with its texts and graph: all that inference needs.

    Attributes
    ----------
    model : omega
    data : the text bank and the training labels
    settings : the section `dance`
    graph : over the nodes of `data`
    """

    model: DanceModel
    data: ClientView
    settings: DanceConfig
    graph: GraphView

    @property
    def views(self) -> list[str]:
        """Names of the deployed views, in the order of `dance.views`."""
        return self.settings.views.split("+")

    @property
    def everyone(self) -> Int64[Tensor, "n"]:
        """[n] int64, all local nodes."""
        return torch.arange(self.data.num_nodes, device=self.data.device)


@dataclass(frozen=True)
class DanceClient(Reader):
    """A `Reader` of a client's own data.

    Attributes
    ----------
    graph : the whole local graph, or the one of training, which lacks the nodes of the test split
        in inductive mode
    """

    data: ClientData
    graph: LocalGraph

    def deciding(self) -> "DanceClient":
        """Return the client on the device where it condenses: the host, if it is small.

        Its model is a copy of the model at the time of the call.
        """
        if self.data.device == HOST or self.data.num_nodes > MAX_DECIDED_ON_HOST:
            return self
        data, origin = self.data.on_host(), self.data
        model: DanceModel = origin.cached("model on the host", self.model, self._copied_model)
        state, model.prior = moved((dict(self.model.state_dict()), self.model.prior), HOST)
        load_state(model, state)
        graph = data.training_graph if self.graph is origin.training_graph else data.graph
        return DanceClient(model, data, self.settings, graph)

    def _copied_model(self) -> DanceModel:
        return deepcopy(self.model).to(HOST)


class TwoSteps(Backbone):
    """P^2 x^ without parameters, P of "gcn": where `dance.core-rule` = coverage compares nodes."""

    operator = "gcn"

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """P^2 x^; [n, d]."""
        return propagated(operator, propagated(operator, normalised))


def pool_of(client: DanceClient, times_selected: Int64[Tensor, "n"]) -> Pool:
    """Return the nodes of a client that a core may be selected from."""
    graph, data, propagated = client.graph, client.data, None
    if client.settings.rule == COVERAGE:
        # Why not g_v (decision 7): what a node stands for does not depend on an untrained model.
        propagated = data.inputs(graph, TwoSteps(0.0))
    return Pool(data.train_labels, times_selected, graph.visible, propagated)


@torch.no_grad()
def plain_pass(reader: Reader) -> Prediction:
    """Return g_v = z_v and p(y | v) of every node: one pass of the model over an original graph.

    Texts are read in blocks, as those of a large client are float16 in a mapped file.
    """
    backbone = reader.model.backbone
    projected = projected_texts(backbone, reader.data.table.nodes)
    return pass_of_texts(reader.model, projected, reader.graph.operator(backbone.operator))


@torch.no_grad()
def projected_texts(backbone: Backbone, texts: Float[Tensor, "n d"]) -> Float[Tensor, "n w"]:
    """Return U x^ of texts, read in blocks; [n, d] -> [n, w]."""
    # U x^ of all nodes is in memory at once, their texts are not.
    blocks = torch.split(texts, _MAX_IN_ONE_PASS)
    return torch.cat([backbone.project(normalise(block.float())) for block in blocks])


@torch.no_grad()
def pass_of_texts(
    model: DanceModel, projected: Float[Tensor, "n w"], operator: Tensor
) -> Prediction:
    """Return `plain_pass` of texts that have been projected."""
    hidden = model.eval().backbone.propagate_projected(projected, operator)
    return Prediction.of(hidden, torch.softmax(model.graph_logits(hidden), dim=1))


@torch.no_grad()
def plain_pass_in_blocks(client: DanceClient) -> Prediction:
    """Return `plain_pass` of a client, in blocks whose memory does not grow with n.

    The first layer of every node is kept in a scratch file, so that no node is read twice.
    """
    model, backbone, graph = client.model.eval(), client.model.backbone, client.graph
    data, everyone = client.data, client.everyone
    inputs = data.inputs(graph, backbone)
    # Alg. 2, forward (once). A graph of this size is read whole.
    if data.num_nodes <= _MAX_IN_ONE_PASS:
        steps = [graph.operator(backbone.operator)] * backbone.hops_left
        hidden = backbone.finish(backbone.start(rows_at(inputs, everyone)), steps)
        return Prediction.of(hidden, torch.softmax(model.graph_logits(hidden), dim=1))
    # Blocks are smaller than a pass, as each also reads the nodes around it.
    blocks = torch.split(everyone, _MAX_IN_ONE_PASS // 8)
    width = backbone.start(rows_at(inputs, everyone[:1])).size(1)
    # Why a file (decision 16): no node passes the first layer twice, and memory stays that of a
    # block.
    first = derived.scratch(data.folder, (data.num_nodes, width))
    hidden = derived.scratch(data.folder, (data.num_nodes, model.head_graph.in_features))
    for block in blocks:
        first[block.to(first.device)] = backbone.start(rows_at(inputs, block)).to(first)
    # Before the loop: what outlives a block would split the memory that the next one needs.
    predicted = torch.empty_like(everyone)
    confidence, difficulty = torch.empty(2, len(everyone), device=everyone.device)
    for block in blocks:
        ball = graph.around(backbone.operator, block, backbone.hops_left)
        g = backbone.finish(rows_at(first, ball.nodes), ball.operators)
        hidden[block.to(hidden.device)] = g.to(hidden)
        part = Prediction.of(g, torch.softmax(model.graph_logits(g), dim=1))
        predicted[block], confidence[block] = part.predicted, part.confidence
        difficulty[block] = part.difficulty
    return Prediction(hidden, predicted, confidence, difficulty, model.head_graph.out_features)


@torch.no_grad()
def embed(
    client: DanceClient, nodes: Int64[Tensor, "m"], *, again: bool = False
) -> Float[Tensor, "m h"]:
    """Return g_v of these distinct nodes; reads them and their neighbours alone.

    Parameters
    ----------
    again : whether the same nodes will be asked for again, so that their surroundings are
        remembered, and what is read of them if that is at most 16,384 rows
    """
    backbone, data, graph = client.model.eval().backbone, client.data, client.graph
    table = data.inputs(graph, backbone)

    def surroundings() -> tuple[Neighbourhood, Tensor | None]:
        ball = graph.around(backbone.operator, nodes, backbone.hops_left)
        # Rows of a large surrounding stay where they are, in memory or in a mapped file.
        few = again and ball.nodes.numel() <= _MAX_REMEMBERED
        return ball, rows_at(table, ball.nodes) if few else None

    if again:
        # Why the type of the backbone too (decision 16): inputs are P x for one backbone and x for
        # another, and a process may serve both at one client.
        key = graph.name, type(backbone), backbone.operator, backbone.hops_left
        ball, rows = data.cached("surroundings", (*key, content(nodes)), surroundings)
    else:
        ball, rows = surroundings()
    inputs = rows_at(table, ball.nodes) if rows is None else rows
    return backbone.finish(backbone.start(inputs), ball.operators)  # type: ignore[no-any-return]
