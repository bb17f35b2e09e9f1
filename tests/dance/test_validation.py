"""Evidence that validations reuse until the next node condensation."""

import pytest
import torch

from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import (
    ValidationEvidence,
    predict_nodes,
    predict_selected,
    select_for_validation,
)
from dance_flwr.dance.passes import DanceClient, plain_pass_in_blocks
from dance_flwr.dance.plan import Condensation
from dance_flwr.dance.state import CONDENSATION, VALIDATION, RunFolder, read_stored
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo

CPU = torch.device("cpu")
KEYS = {"dance_core_refresh_every": 3, "dance_batch_nodes": 4}


def model_of(data, config, moved=0.0):
    """The first model, its parameters moved by random numbers of this size."""
    model = initial_model(shape_of(data.text_dim, 3, config), config).eval()
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += moved * torch.randn(parameter.shape, generator=draws)
    return model


def keep(model, data, settings, nodes):
    client = DanceClient(model, data, settings, data.training_graph)
    plain = plain_pass_in_blocks(client)
    return select_for_validation(client, nodes, plain, plain.difficulty)


def whole(model, data, settings):
    return DanceClient(model, data, settings, data.graph)


@pytest.mark.parametrize("block", [4096, 2])
@pytest.mark.parametrize("keys", [{}, {"dance_label_evidence": False}, {"dance_views": "fused"}])
def test_the_model_that_condensed_predicts_what_it_would_select(
    data, run_config, tmp_path, monkeypatch, keys, block
):
    monkeypatch.setattr("dance_flwr.dance.inference._NODES_PER_BLOCK", block)
    config = run_config(**keys)
    settings, nodes = DanceConfig.of(config), torch.tensor([1, 2, 5, 7, 11])
    model = model_of(data, config, 0.1)
    write_npz(tmp_path / "validation.npz", keep(model, data, settings, nodes).arrays())
    kept = read_stored(tmp_path / "validation.npz", ValidationEvidence, CPU)
    found = predict_selected(whole(model, data, settings), kept)
    wanted = predict_nodes(whole(model, data, settings), nodes)
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], atol=1e-5, rtol=0)


def validate(client, model, round_):
    """Return what a validation deploys; the client's model is then this one, with its prior."""
    state = dict(model.state_dict())
    client.validate(state, RoundInfo("run", round_, model_fingerprint(state)))
    info = RoundInfo("run", round_, model_fingerprint(state))
    nodes = validated_nodes(client.data, client.config)
    return client.predict(info, nodes)["deployed"]


def train(client, round_):
    first = model_of(client.data, client.config)
    info = RoundInfo("run", round_, "m")
    client.train(dict(first.state_dict()), info)


@pytest.mark.parametrize("spoiled", ["other nodes", "damaged", "all damaged"])
def test_without_evidence_of_its_nodes_a_validation_selects_it(data, run_config, spoiled):
    config = run_config(device="cpu", **KEYS)
    client = Client(data, config)
    train(client, 1)
    folder = RunFolder(data.folder, "run")
    path, other = folder.latest(VALIDATION), folder.latest(CONDENSATION)
    difficulty = read_stored(other, Condensation, CPU).difficulty
    if spoiled == "other nodes":
        with_others = dict(read_npz(path))
        with_others["nodes"] = with_others["nodes"][::-1]
        write_npz(path, with_others)
    else:
        path.write_bytes(path.read_bytes()[:-40])
    if spoiled == "all damaged":
        other.write_bytes(other.read_bytes()[:-40])
        difficulty = None
    found = validate(client, model_of(data, config, 0.1), 2)
    settings, nodes = DanceConfig.of(config), validated_nodes(data, config)
    client = whole(client.model, data, settings)
    wanted = predict_nodes(client, nodes, difficulty)["deployed"]
    torch.testing.assert_close(found, wanted)
