"""Batches of labelled nodes with sampled neighbours, for the methods that train on whole graphs."""

import pytest
import torch
from support.contract import SamplingContract

from dance_flwr.config.plugins import METHODS
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import initial_model, open_client, shape_of
from dance_flwr.methods import check_method, get_spec
from dance_flwr.methods.plain_method import LabelledGraph
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.methods.whole_graph import epoch_batches, train_on_graph

SAMPLED = ["fedavg-full", "fedavg-rotating", "local-only", "fedper", "ditto"]


def test_the_methods_of_whole_graphs_can_sample():
    offering = [name for name in METHODS.builtin if SamplingConfig in get_spec(name).sections]
    assert offering == SAMPLED


def test_the_queue_covers_every_labelled_node_before_it_repeats_one(run_config):
    config, labelled = run_config(local_epochs=3), 10 * torch.arange(23)
    steps = [
        batch
        for round_ in range(1, 5)
        for batch in epoch_batches(labelled, 5, config, round_=round_, client=1)
    ]
    passes = [torch.cat(steps[first : first + 5]) for first in (0, 5)]
    for nodes in passes:
        assert nodes.sort().values.equal(labelled)
    assert not passes[0].equal(passes[1])
    assert {len(batch) for batch in steps} == {4, 5}


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "gin", "sgc"])
def test_a_batch_of_all_nodes_and_neighbours_trains_as_the_whole_graph(backbone, run_config):
    """Without dropout, whose draws differ, up to rounding."""
    states = []
    for keys in ({}, {"sampling_batch_nodes": 1000, "sampling_fan_out": 0}):
        config = run_config(method="fedavg-full", backbone=backbone, dropout=0.0, **keys)
        data = open_client(prepare(config).folder / "client-0", config).data
        shape = shape_of(data.text_dim, len(data.card.class_names), config)
        model = initial_model(shape, config)
        train_on_graph(model, LabelledGraph.of(data, data.training_graph, model), config, 1)
        states.append(model.state_dict())
    for name, tensor in states[0].items():
        assert torch.allclose(states[1][name], tensor, atol=1e-3), name


@pytest.mark.parametrize("method", SAMPLED)
class TestSampling(SamplingContract):
    """Of the methods of this package."""


def test_a_backbone_that_reaches_far_is_refused_for_sampled_training_alone(run_config):
    check_method(run_config(method="local-only", backbone="appnp"))
    check_method(run_config(method="dance", backbone="appnp", sampling_batch_nodes=8))
