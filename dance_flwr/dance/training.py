"""Alg. 1, client side: local epochs on the condensed graph."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.algorithm import ClientRound, Refreshed
from dance_flwr.dance.losses import (
    Labelled,
    Logits,
    condensed_loss,
    laplace_like,
    perturb,
    plain_loss,
    supervised_nodes,
)
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.topology import Edges
from dance_flwr.dance.weighing import DenseSelection, weigh
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.propagation import operator, trainable
from dance_flwr.nn.ragged import rows_at
from dance_flwr.nn.training import class_weights, train_epochs


def train_round(now: ClientRound, start: Refreshed) -> None:
    """Train omega on the condensed graph for `local-epochs` epochs; changes the model in place."""
    selection, edges = start.plan.batch(start.turn)
    counts, settings = now.report.counts, now.client.settings
    with now.report.phase("train"):
        supervised = supervised_nodes(selection, _labels(now.client.data), settings)
        if counts["condensed-nodes"]:
            counts["evidence-supervised"] = supervised.numel()
        mass = start.plan.mass_at(start.turn)
        now.report.loss = train_condensed(now, selection, edges, supervised, mass)


def train_condensed(
    now: ClientRound,
    selection: Selection,
    edges: Edges,
    supervised: Int64[Tensor, "s"],
    mass: Float[Tensor, "K"] | None = None,
) -> float:
    """Train omega on the condensed graph; return the last loss.

    The backbone on the original graph reads the batch, the supervised nodes and at most `fan_out`
    neighbours of each, drawn once a round; its first propagation step is precomputed.

    Parameters
    ----------
    selection : of the core; on the host, as all that follows
    supervised : [s] int64, the nodes of the plain term
    mass : [K] weight of each core node in the condensed losses; None = all 1
    """
    client, model, backbone = now.client, now.client.model, now.client.model.backbone
    data, settings, core = client.data, client.settings, selection.nodes
    count = core.numel()
    # The core first: its rows are the first `count` of every output.
    nodes = torch.cat([core, supervised[~torch.isin(supervised, core)]])
    # Why drawn once a round (decision 16): all epochs read the same rows, gathered once.
    ball = client.graph.on_host.around(
        *(backbone.operator, nodes, backbone.hops_left, settings.fan_out),
        now.draws("neighbours"),
    )
    labels = _labels(data)[ball.nodes[: nodes.numel()]]
    weights = class_weights(_labels(data), model.head_graph.out_features, now.config)
    # Why mass for the core alone: its selected neighbours stand for no other node.
    labelled = Labelled.among(labels, weights), Labelled.among(labels[:count], weights, mass)
    # Why `trainable` (decision 16): the gradient of a small dense operator is the cheaper one.
    steps = [trainable(step, backbone.operator) for step in ball.operators]
    condensed = trainable(operator(backbone.operator, *edges, count), backbone.operator)
    # Why decided on the host and moved at once (decision 31): all of these have sizes that follow
    # from their values, and each of them that a GPU computes is a wait.
    (every, of_core), (steps, condensed), around_core = moved(
        (labelled, (steps, condensed), ball.nodes), data.device
    )
    inputs = rows_at(data.inputs(client.graph, backbone), around_core)
    dense = DenseSelection.of(client, selection)
    width = model.fuse_graph.out_features
    # Once a round, as in the appendix of the paper.
    noise = laplace_like(dense.texts.new_empty(count, width), settings.feature_noise)

    def loss() -> Tensor:
        # Why dropout after the first propagation step (decision 16): the step is precomputed.
        around = backbone.finish(backbone.start(backbone.drop(inputs)), steps)
        graph, hidden = model.graph_logits(around), around[:count]
        texts, neighbour_labels = weigh(client, hidden, dense)
        fused_text, text = model.read(texts).unbind(1)
        features = perturb(model.fuse_read(hidden, fused_text), noise)
        # The order of these calls is that in which dropout draws.
        core = model.graph_logits(model.condensed_hidden(features, condensed))
        text = model.text_logits(text)
        fused = model.fused_logits(features, neighbour_labels)
        # The condensed losses are of the core, the plain term of all supervised nodes (decision 7).
        value = condensed_loss(Logits(graph[:count], text, fused, core), of_core, settings)
        return value + plain_loss(graph, every, settings)

    return train_epochs(model, loss, now.config, round_=now.number)


def _labels(data: ClientData) -> Int64[Tensor, "n"]:
    return data.cached("labels on the host", "", lambda: moved(data.train_labels, HOST))
