"""Alg. 1, client side: local epochs on the condensed graph."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.algorithm import ClientRound, Refreshed
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.losses import (
    Labelled,
    Logits,
    condensed_loss,
    laplace_like,
    perturb,
    supervised_nodes,
)
from dance_flwr.dance.passes import DanceClient, Reader
from dance_flwr.dance.selection import Padded
from dance_flwr.dance.text import budgets
from dance_flwr.dance.weighing import DenseSelection, weigh
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.neighbourhood import Neighbourhood, power_of_two
from dance_flwr.nn.propagation import densified, operator, places, trainable, widened
from dance_flwr.nn.ragged import rows_at
from dance_flwr.nn.training import class_weights, train_epochs

# Entries of an operator that is dense on a GPU, at most 128 MB when rounded up (decision 31).
_MAX_DENSE = 2**23
_ROWS = 16  # the rows of a core are rounded up to a multiple of them


@dataclass(frozen=True)
class Drawn:
    """What a round trains on, on the host.

    Attributes
    ----------
    ball : the batch, the core and its supervised neighbours, and the nodes around it
    labels : of the batch, -1 where unknown; of_core : of the core, its first K nodes
    condensed : [K, K] operator of the condensed graph
    evidence : of the core
    mass : [K] weight of each core node in the condensed losses; None = all 1
    shares : as of `Batch`; None = not rounded up
    """

    ball: Neighbourhood
    labels: Int64[Tensor, "m"]
    condensed: Tensor
    of_core: Int64[Tensor, "K"]
    evidence: Padded
    mass: Float[Tensor, "K"] | None
    shares: Float[Tensor, "K"] | None = None

    def is_capturable(self, client: DanceClient) -> bool:
        """Whether the epochs of the round on a GPU can have a shape that other rounds have too."""
        # Rejected candidates are of any number, and attention reads a list of edges.
        settings, kind = client.settings, client.model.backbone.operator
        if client.data.device == HOST or settings.trained_evidence != "selected" or kind == "loops":
            return False
        sizes = [step.size(0) * step.size(1) for step in self.ball.operators]
        # A core without a label leaves parameters without a gradient, which Adam then skips.
        return bool((self.of_core >= 0).any()) and max(sizes, default=0) <= _MAX_DENSE

    def rounded_up(self, settings: DanceConfig) -> "Drawn":
        """Return the round with its sizes rounded up: by zeros, and by nodes without weight.

        Evidence is as wide as its budgets: one shape serves all rounds.
        """
        count, size = self.of_core.numel(), power_of_two(self.labels.numel())
        rows = -(-count // _ROWS) * _ROWS
        below = (0, rows - count)
        return Drawn(
            self.ball.rounded_up(),
            F.pad(self.labels, (0, size - self.labels.numel()), value=-1),
            widened(self.condensed, rows, rows),
            F.pad(self.of_core, below, value=-1),
            self.evidence.widened((*budgets(settings), settings.chunk_budget), rows),
            None if self.mass is None else F.pad(self.mass, below),
            F.pad(torch.full((count,), 1 / count), below),
        )


@dataclass(frozen=True)
class Batch:
    """What the epochs of a round read, gathered once, on the client's device.

    Attributes
    ----------
    inputs : [b, i] `Backbone.inputs` of the nodes around the batch
    steps : operators of the original graph, from the outermost nodes to the batch
    condensed : [K, K] operator of the condensed graph
    dense : the evidence of the core
    supervised, core : labels of the batch, and of the core, its first K nodes
    shares : [K] of the core's nodes in means over it; None = all the same
    noise : [K, w] added to x_v; None = none
    """

    inputs: Float[Tensor, "b i"]
    steps: tuple[Tensor, ...]
    condensed: Float[Tensor, "K K"]
    dense: DenseSelection
    supervised: Labelled
    core: Labelled
    shares: Float[Tensor, "K"] | None
    noise: Float[Tensor, "K w"] | None


def train_round(now: ClientRound, start: Refreshed) -> None:
    """Train omega on the condensed graph for `local-epochs` epochs; changes the model in place."""
    counts, settings = now.report.counts, now.client.settings
    with now.report.phase("train"):
        supervised = supervised_nodes(start.evidence, _labels(now.client.data), settings)
        if counts["condensed-nodes"]:
            counts["evidence-supervised"] = supervised.numel()
        now.report.loss = train_condensed(now, start, supervised)


def train_condensed(now: ClientRound, start: Refreshed, supervised: Int64[Tensor, "s"]) -> float:
    """Train omega on the condensed graph; return the last loss.

    The backbone on the original graph reads the batch, the supervised nodes and at most `fan_out`
    neighbours of each, drawn once a round; its first propagation step is precomputed.

    Parameters
    ----------
    start : evidence, edges and mass of the core
    supervised : [s] int64, the nodes of the plain term, on the host
    """
    client, model, core = now.client, now.client.model, start.evidence.nodes
    # The core first: its rows are the first K of every output.
    nodes = torch.cat([core, supervised[~torch.isin(supervised, core)]])
    # Why drawn once a round (decision 16): all epochs read the same rows, gathered once.
    kind, hops = model.backbone.operator, model.backbone.hops_left
    ball = client.graph.on_host.around(
        kind, nodes, hops, client.settings.fan_out, now.draws("neighbours")
    )
    labels, count = _labels(client.data)[nodes], core.numel()
    condensed = operator(kind, *start.edges, count)
    drawn = Drawn(ball, labels, condensed, labels[:count], start.evidence, start.mass)
    if captured := drawn.is_capturable(client):
        # Why (decision 31): epochs are captured once per shape, and replayed in other rounds.
        drawn = drawn.rounded_up(client.settings)
    batch = _gathered(now, drawn)
    if not captured:
        loss = partial(batch_loss, client, batch)
        return train_epochs(model, loss, now.config, round_=now.number)
    from dance_flwr.nn.captured import train_replayed  # on a GPU only

    return train_replayed(model, partial(batch_loss, client), batch, now.config, round_=now.number)


def _gathered(now: ClientRound, drawn: Drawn) -> Batch:
    client, model = now.client, now.client.model
    data, backbone = client.data, client.model.backbone
    weights = class_weights(_labels(data), model.head_graph.out_features, now.config)
    labelled = Labelled.among if drawn.shares is None else Labelled.masked
    # Why mass for the core alone: its selected neighbours stand for no other node.
    losses = labelled(drawn.labels, weights), labelled(drawn.of_core, weights, drawn.mass)
    sparse, flat = (*drawn.ball.operators, drawn.condensed), []
    if drawn.shares is None:
        # Why `trainable` (decision 16): the gradient of a small dense operator is the cheaper one.
        steps = tuple(trainable(step, backbone.operator) for step in sparse)
    else:
        steps, flat = (), [(places(step), step.values()) for step in sparse]
    # Why decided on the host and moved at once (decision 31): all of these have sizes that follow
    # from their values, and each of them that a GPU computes is a wait.
    losses, steps, flat, shares, around_core, evidence = moved(
        (losses, steps, flat, drawn.shares, drawn.ball.nodes, drawn.evidence), data.device
    )
    if shares is not None:
        steps = tuple(densified(*of, step.shape) for of, step in zip(flat, sparse, strict=True))
    dense = DenseSelection.of(client, evidence)
    features = dense.texts.new_empty(len(dense.texts), model.fuse_graph.out_features)
    return Batch(
        rows_at(data.inputs(client.graph, backbone), around_core),
        steps[:-1],
        steps[-1],
        dense,
        *losses,
        shares,
        # Once a round, as in the appendix of the paper.
        laplace_like(features, client.settings.feature_noise),
    )


def batch_loss(reader: Reader, batch: Batch) -> Float[Tensor, ""]:
    """`condensed_loss` of the core + plain_weight CE(Dec_g(g_v), y_v) of the batch; a scalar."""
    model, settings, count = reader.model, reader.settings, batch.condensed.size(0)
    backbone = model.backbone
    # Why dropout after the first propagation step (decision 16): the step is precomputed.
    around = backbone.finish(backbone.start(backbone.drop(batch.inputs)), batch.steps)
    graph, hidden = model.graph_logits(around), around[:count]
    texts, neighbour_labels = weigh(reader, hidden, batch.dense)
    fused_text, text = model.read(texts).unbind(1)
    features = perturb(model.fuse_read(hidden, fused_text), batch.noise)
    # The order of these calls is that in which dropout draws.
    core = model.graph_logits(model.condensed_hidden(features, batch.condensed))
    text = model.text_logits(text)
    fused = model.fused_logits(features, neighbour_labels)
    # The condensed losses are of the core, the plain term of all supervised nodes (decision 7).
    logits = Logits(graph[:count], text, fused, core)
    value = condensed_loss(logits, batch.core, settings, batch.shares)
    # Why the last term (decision 7): nothing else trains the plain pass, on which gating relies.
    return value + settings.plain_weight * batch.supervised.cross_entropy(graph)


def _labels(data: ClientData) -> Int64[Tensor, "n"]:
    return data.cached("labels on the host", "", lambda: moved(data.train_labels, HOST))
