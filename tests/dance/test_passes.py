"""The passes over the original graph: of some nodes, of all, in blocks, and predictions of them."""

from dataclasses import replace

import pytest
import torch
from support.graphs import TEXT_DIM

from dance_flwr.client_data import inputs as derived
from dance_flwr.config.plugins import BACKBONES
from dance_flwr.dance import passes
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict, predict_nodes
from dance_flwr.dance.passes import DanceClient, embed, plain_pass, plain_pass_in_blocks
from dance_flwr.methods.dance.client import Dance
from dance_flwr.nn.model import ModelShape

VIEWS = ("plain+fused", "fused", "plain", "core", "plain+core+fused")


def model_of(run_config, name="gcn", **keys):
    torch.manual_seed(3)
    model = Dance().build(ModelShape(TEXT_DIM, 8, 3), run_config(backbone=name, **keys))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def client_of(model, data, settings=None):
    return DanceClient(model, data, settings or DanceConfig(), data.graph)


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("name", BACKBONES)
def test_blocks_and_embeddings_are_the_plain_pass(dance, run_config, monkeypatch, name, place):
    """Exactly in memory up to the order of sums; from disk within the rounding of float16."""
    data, model = dance.data(0), model_of(run_config, name)
    wanted = plain_pass(client_of(model, data))
    if place == "disk":
        monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
        data = dance.data(0)
    near = {"atol": 3e-6 if place == "memory" else 5e-3, "rtol": 1e-5}
    client = client_of(model, data)
    seen = plain_pass_in_blocks(client)
    for what in ("hidden", "confidence", "difficulty"):
        torch.testing.assert_close(getattr(seen, what), getattr(wanted, what), **near)
    assert seen.classes == 3
    nodes = torch.tensor([5, 0, data.num_nodes - 1])
    for asked in (nodes, nodes[:1], torch.arange(data.num_nodes)):
        found = embed(client, asked)
        torch.testing.assert_close(found, wanted.hidden[asked], **near)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("paper", [False, True])
def test_predictions_of_some_nodes_are_those_of_all(dance, run_config, views, paper):
    """Deployed views alone are computed, and "deployed" is their mean."""
    data, settings = dance.data(0), replace(DanceConfig.of(dance.config), views=views)
    model = model_of(run_config, dance_paper_rules=paper)
    client = client_of(model, data, settings)
    everyone = predict(client)
    chosen = views.split("+")
    assert everyone.keys() == {*chosen, "deployed"}
    mean = torch.stack([everyone[name] for name in chosen]).mean(0)
    torch.testing.assert_close(everyone["deployed"], mean)
    for probs in everyone.values():
        torch.testing.assert_close(probs.sum(1), torch.ones(data.num_nodes))
    nodes = torch.tensor([7, 3, 11])
    given = plain_pass_in_blocks(client).difficulty
    for difficulty in (None, given):
        some = predict_nodes(client, nodes, difficulty)
        assert some.keys() == everyone.keys()
        for name, probs in some.items():
            torch.testing.assert_close(probs, everyone[name][nodes], atol=1e-5, rtol=0)


@pytest.mark.parametrize("paper", [False, True])
def test_predictions_of_every_view_from_disk_are_those_from_memory(
    dance, run_config, monkeypatch, paper
):
    settings = replace(DanceConfig.of(dance.config), views="plain+core+fused")
    model = model_of(run_config, dance_paper_rules=paper)
    wanted = predict(client_of(model, dance.data(0), settings))
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(passes, "_MAX_IN_ONE_PASS", 20)  # the last block is not full
    found = predict(client_of(model, dance.data(0), settings))
    for view, probs in wanted.items():
        torch.testing.assert_close(found[view], probs, atol=5e-3, rtol=0)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_pass_in_blocks_is_the_single_pass(dance, run_config, monkeypatch, name):
    data, model = dance.data(0), model_of(run_config, name)
    wanted = plain_pass_in_blocks(client_of(model, data))
    monkeypatch.setattr(passes, "_MAX_IN_ONE_PASS", 20)  # blocks of five nodes
    before = {path.name for path in data.folder.iterdir()}
    seen = plain_pass_in_blocks(client_of(model, data))
    assert seen.hidden.dtype == torch.float16 and seen.hidden.shape == wanted.hidden.shape
    assert seen.predicted.dtype == torch.int64 and seen.classes == wanted.classes
    for what in ("hidden", "confidence", "difficulty"):
        torch.testing.assert_close(
            getattr(seen, what).float(), getattr(wanted, what), atol=5e-3, rtol=0
        )
    assert {path.name for path in data.folder.iterdir()} == before  # the scratch has no name
