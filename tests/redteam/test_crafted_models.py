"""A server that crafts the model of a round, so that a masked sum gives single rows."""

from contextlib import suppress

import pytest
import torch
from support.asking import asker, first_training, reason
from support.crafted import WEIGHT, bins, rows_read, traps, veiled_bins

import server_app
from dance_flwr.client_data.inputs import resident_inputs
from dance_flwr.errors import UserError
from dance_flwr.federation.client.admission import _refuse_parallel, clipped
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.methods.upload_checks import update_norm
from dance_flwr.nn.model import ModelShape, PlainModel

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


@pytest.fixture
def client(run, tmp_path):
    """A function that asks one client, which has a folder of its own, and returns its reply."""
    return asker(first_training(run, **PLAIN), tmp_path / "own")


def scaled(weight):
    """Multiples of one row, half of them negative."""
    return torch.linspace(-2, 2, len(weight))[:, None] * weight[:1]


PARALLEL = {
    "repeated": lambda weight: weight[:1].expand_as(weight).clone(),
    "scaled and turned round": scaled,
    "nearly": lambda weight: weight[:1] + 0.1 * weight,
    "in pairs": lambda weight: weight[: len(weight) // 2].repeat_interleave(2, dim=0),
    "a few": lambda weight: torch.cat([weight[:-7], scaled(weight[-7:])]),
}


@pytest.mark.parametrize("rows_of", PARALLEL.values(), ids=PARALLEL.keys())
def test_a_model_with_parallel_rows_is_refused_in_any_round(client, rows_of):
    lie = client.model | {WEIGHT: rows_of(client.model[WEIGHT])}
    assert "of the units have weights parallel" in reason(client(model=lie, server_round=2))
    assert not client(server_round=2).has_error()


def test_round_1_starts_from_the_model_of_the_seed_and_no_round_from_one_far_away(client):
    other = {name: value + 0.01 for name, value in client.model.items()}
    assert "expected the initial model of the run's seed" in reason(client(model=other))
    assert not client(model=other, server_round=2).has_error()
    assert "max-change" in reason(client({"max-change": 0.01}, model=other, server_round=2))
    far = {name: 30 * value for name, value in client.model.items()}
    assert "max-change" in reason(client(model=far, server_round=2))
    lacking = {name: value for name, value in client.model.items() if name != WEIGHT}
    assert "found others or none" in reason(client(model=lacking))
    assert "found NaN" in reason(
        client(model=client.model | {WEIGHT: float("nan") * other[WEIGHT]})
    )


def test_units_that_read_texts_alike_are_no_sign_of_an_attack():
    """Trained units are: what is learnt of few classes has few directions, beside their noise."""
    draw = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(64, 64, generator=draw))[0]
    texts = torch.randn(200, 32, generator=draw) @ basis[:32]
    model = PlainModel(ModelShape(64, 16, 3), "gcn", 0.0)
    with torch.no_grad():
        noise = torch.randn(16, 32, generator=draw) @ basis[32:]
        model.backbone.text_weight().copy_(basis[0] + 0.2 * noise)
        outputs = texts @ model.backbone.text_weight().T
    assert torch.corrcoef(outputs.T).min() > 0.99
    _refuse_parallel(model)


def test_bins_that_are_veiled_pass_the_check_though_texts_are_read_alike(rows):
    """An adaptive attacker: what docs/privacy.md says of later rounds."""
    model = PlainModel(ModelShape(rows.size(1), 64, 3), "gcn", 0.0)
    model.load_state_dict(veiled_bins(model.state_dict(), rows))
    _refuse_parallel(model)
    outputs = (rows - rows.mean(dim=0)) @ model.backbone.text_weight().detach().T
    assert torch.corrcoef(outputs.T).median() > 0.99


def test_a_node_clips_its_update(client):
    start, seen = client.model, messages.model_of(client({"max-change": 0.01}))
    length = update_norm(start, {name: 0 * value for name, value in start.items()})
    assert update_norm(seen, start) == pytest.approx(0.01 * length, rel=1e-3)
    assert update_norm(messages.model_of(client()), start) > 0.02 * length


def test_an_update_is_clipped_and_one_within_the_bound_is_the_same_to_the_last_bit():
    start = {"a": torch.randn(50), "n": torch.tensor(3)}
    state = {"a": start["a"] + 1, "n": torch.tensor(4)}
    assert clipped(state, start, 50**0.5 + 0.1) is state
    change = clipped(state, start, 2.0)["a"] - start["a"]
    assert torch.allclose(change, torch.full((50,), 2 / 50**0.5), atol=1e-6)
    broken = state | {"a": torch.full((50,), float("nan"))}
    assert clipped(broken, start, 2.0) is broken  # refused where uploads are checked
