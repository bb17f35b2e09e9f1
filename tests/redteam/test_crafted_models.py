"""A server that crafts the model from which clients train, so that a masked sum gives their rows."""

from contextlib import suppress

import pytest
import torch

import server_app
from dance_flwr.client_data.inputs import resident_inputs
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.study.protocols.attacks.crafted import bins, rows_read, traps

# What a server would ask for: one step from the crafted model, and no randomness.
PLAIN = {
    **{"clients": 3, "rounds": 1, "method": "fedavg-full", "hidden_dim": 64},
    **{"local_epochs": 1, "weight_decay": 0.0, "dropout": 0.0},
}


@pytest.fixture(scope="module")
def rows(reference):
    """[s, d] what the first layer reads at the labelled nodes of all clients."""
    finished, parts = reference(**PLAIN), []
    for client in range(3):
        data = finished.data(client)
        shape = shape_of(data.text_dim, len(data.card.class_names), finished.config)
        backbone = initial_model(shape, finished.config).backbone
        inputs = resident_inputs(backbone, data.table.nodes, data.graph)
        parts.append(inputs[data.train_labels >= 0])
    return torch.cat(parts)


@pytest.mark.parametrize("craft", [bins, traps])
def test_one_crafted_start_model_gives_no_row_of_a_masked_sum(run, monkeypatch, rows, craft):
    crafted, sent = {}, []

    def initial_arrays(_, model):
        crafted.update(craft(model, rows))
        return arrays_of(crafted)

    def note(message):
        if not message.metadata.src_node_id and keys.ARRAYS in message.content:
            sent.append(messages.model_of(message))

    monkeypatch.setattr(server_app, "initial_arrays", initial_arrays)
    with suppress(UserError):
        run(on_message=note, privacy_secure_aggregation=True, **PLAIN)
    assert len(sent) > 1 and rows_read(crafted, sent[-1], rows) == 0
