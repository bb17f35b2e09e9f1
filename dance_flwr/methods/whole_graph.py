"""Local training on a client's whole graph, or on sampled batches of it (`sampling.*`)."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import LabelHalves
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod, labelled_loss
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.metrics import Report
from dance_flwr.nn.blocks import Block, OperatorRows
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.ragged import rows_at
from dance_flwr.nn.training import class_weights, train_epochs
from dance_flwr.seeding import generator

_ROWS = WeakTensorKeyDictionary()  # operator -> its rows; clients keep their operators


def train_on_graph(
    model: PlainModel,
    graph: LabelledGraph,
    config: RunConfig,
    round_: int,
    targets: Tensor | None = None,
) -> float:
    """Minimise the cross-entropy of the labelled nodes for the local epochs; return the last loss.

    With `sampling.batch-nodes`, every epoch takes a batch of the labelled nodes and a block of
    sampled neighbours; the loss is the batch's mean. With `label-reuse`, a random half of the
    graph's labels is an input, and the loss is on the nodes whose label is not shown.

    Parameters
    ----------
    round_ : t, from 1
    targets : [n] int64, labels that the loss covers, -1 elsewhere; None = all labels of the graph
    """
    halves = LabelHalves(model, graph.labels, config, round_, graph.client)
    targets = graph.labels if targets is None else targets
    weights = class_weights(graph.labels, model.head_graph.out_features, config)
    # A generator that is advanced by batches alone: on the whole graph nothing is drawn.
    blocks = _blocks(model, replace(graph, labels=targets), config, round_)

    def loss_of_all() -> Tensor:
        inputs, rest = halves.split(targets)
        return labelled_loss(model, graph, rest, inputs, weights)

    def loss_of_batch() -> Tensor:
        batch, block = next(blocks)
        # The loss covers the batch; the nodes around it are inputs only.
        in_batch = torch.full_like(targets, -1)
        in_batch[batch] = targets[batch]
        inputs, rest = halves.split(in_batch)
        inside = block.nodes
        inputs = None if inputs is None else inputs[inside]
        features = rows_at(graph.features, inside)
        part = replace(graph, features=features, operator=block.operator, labels=rest[inside])
        return labelled_loss(model, part, part.labels, inputs, weights)

    # A client without a label has no batch, and takes part with a loss of 0.
    sampled = SamplingConfig.of(config).batch_nodes and bool((targets >= 0).any())
    return train_epochs(model, loss_of_batch if sampled else loss_of_all, config, round_=round_)


def _blocks(
    model: PlainModel, graph: LabelledGraph, config: RunConfig, round_: int
) -> Iterator[tuple[Tensor, Block]]:
    if graph.operator not in _ROWS:
        _ROWS[graph.operator] = OperatorRows.of(graph.operator, model.backbone.operator)
    rows: OperatorRows = _ROWS[graph.operator]
    labelled, sampling = torch.nonzero(graph.labels >= 0).flatten(), SamplingConfig.of(config)
    # By round and client: a run that is resumed samples the same neighbours.
    draw = generator(config.seed, "neighbours", round_=round_, client=graph.client)
    size, client = sampling.batch_nodes, graph.client
    steps = model.backbone.hops_left if graph.started else model.backbone.reach
    for batch in epoch_batches(labelled, size, config, round_=round_, client=client):
        yield batch, rows.block(batch, steps, sampling.fan_out, draw)


def epoch_batches(
    labelled: Tensor, size: int, config: RunConfig, *, round_: int, client: int
) -> list[Tensor]:
    """Return the batch of each local epoch of a round, from a queue that spans the rounds.

    Pass q over the queue is a permutation drawn from (seed, q), cut into the fewest batches of at
    most `size` nodes and nearly equal sizes. A client that takes part in every round trains on
    every labelled node before it repeats one; nothing is stored between the rounds.

    Parameters
    ----------
    labelled : [m] int64, m > 0
    size : maximum number of nodes of a batch, at least 1
    """
    # Why (decision 15): a queue that follows from (seed, pass) covers every label before it repeats
    # one, although clients keep no state between rounds.
    per_pass = -(-len(labelled) // size)
    first = (round_ - 1) * config.local_epochs
    batches: list[Tensor] = []
    for step in range(first, first + config.local_epochs):
        draw = generator(config.seed, "batches", round_=step // per_pass, client=client)
        order = torch.randperm(len(labelled), generator=draw).to(labelled.device)
        # Nearly equal sizes, so that no pass ends with a batch of a few nodes.
        batches.append(labelled[order].tensor_split(per_pass)[step % per_pass])
    return batches


class FedAvgFull(PlainMethod):
    """Trains the plain network on the text embeddings of all nodes, for FedAvg and local-only."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes."""
        report = Report()
        graph = LabelledGraph.of(data, data.training_graph, model)
        with report.phase("train"):
            report.loss = train_on_graph(model, graph, config, info.round)
        return report
