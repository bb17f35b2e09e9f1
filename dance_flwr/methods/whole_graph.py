"""Training on a client's whole graph, or on sampled batches where it is large (`sampling.*`)."""

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.plain_method import labelled_loss, train_on
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.nn.blocks import OperatorRows
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.training import train_epochs
from dance_flwr.seeding import generator

_ROWS = WeakTensorKeyDictionary()  # operator -> its rows; clients keep their operators


def train_on_graph(
    model: PlainModel,
    features: Tensor,
    operator: Tensor,
    labels: Tensor,
    config: RunConfig,
    round_: int,
    client: int,
) -> float:
    """Minimise the cross-entropy of the labelled nodes for the local epochs; return the last loss.

    With `sampling.batch-nodes`, every epoch takes a batch of the labelled nodes and a block of
    sampled neighbours; the loss is the batch's mean.

    Parameters
    ----------
    features, operator, labels : as in `plain_method.labelled_loss`
    round_ : t, from 1
    client : its number, for the generators
    """
    sampling, labelled = SamplingConfig.of(config), torch.nonzero(labels >= 0).flatten()
    if not sampling.batch_nodes or not len(labelled):
        return train_on(model, features, operator, labels, config, round_)
    if operator not in _ROWS:
        _ROWS[operator] = OperatorRows.of(operator, model.backbone.operator)
    rows: OperatorRows = _ROWS[operator]
    draw = generator(config.seed, "neighbours", round_=round_, client=client)
    batches = iter(
        epoch_batches(labelled, sampling.batch_nodes, config, round_=round_, client=client)
    )

    def loss_of() -> Tensor:
        batch = next(batches)
        block = rows.block(batch, model.backbone.reach, sampling.fan_out, draw)
        known = labels.new_full((len(block.nodes),), -1)
        known[: len(batch)] = labels[batch]
        return labelled_loss(model, features[block.nodes], block.operator, known)

    return train_epochs(model, loss_of, config, round_=round_)


def epoch_batches(
    labelled: Tensor, most: int, config: RunConfig, *, round_: int, client: int
) -> list[Tensor]:
    """Return the batch of each local epoch of a round, from a queue that spans the rounds.

    Pass q over the queue is a permutation drawn from (seed, q), cut into the fewest batches of at
    most `most` nodes and nearly equal sizes. A client that takes part in every round trains on
    every labelled node before it repeats one; nothing is stored between the rounds.

    Parameters
    ----------
    labelled : [m] int64, m > 0; most : at least 1
    """
    per_pass = -(-len(labelled) // most)
    first = (round_ - 1) * config.local_epochs
    batches: list[Tensor] = []
    for step in range(first, first + config.local_epochs):
        draw = generator(config.seed, "batches", round_=step // per_pass, client=client)
        order = torch.randperm(len(labelled), generator=draw).to(labelled.device)
        batches.append(labelled[order].tensor_split(per_pass)[step % per_pass])
    return batches
