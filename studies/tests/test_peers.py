"""The benchmark of peers: exported tensors are those of the clients, and its runners learn."""

import sys

import pytest
import torch
from support.project import PROJECT

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.prepare import load, prepare

sys.path.insert(0, str(PROJECT / "studies" / "benchmarks" / "peers"))

from compare import export, run_peer


@pytest.fixture(scope="module")
def exported(run_config, tmp_path_factory):
    config, folder = (
        run_config(clients=3, text_pooling="attention", edge_gates="none"),
        tmp_path_factory.mktemp("t"),
    )
    export(config, prepare(config).folder, load(config), folder)
    return config, folder


def test_a_client_has_its_own_tensors_and_the_whole_graph_those_of_all(exported):
    config, folder = exported
    whole = torch.load(folder / "all.pt", weights_only=True)
    for number in range(3):
        own = torch.load(folder / f"client-{number}.pt", weights_only=True)
        data = ClientData.of(prepare(config).folder / f"client-{number}", config)
        assert own["x"].equal(data.table.nodes.float()) and own["y"].equal(data.labels)
        for name in ("x", "y", "train", "val", "test"):
            assert whole[name][own["place"]].equal(own[name])
        pairs = {tuple(pair) for pair in whole["edge_index"].T.tolist()}
        assert {tuple(pair) for pair in own["place"][own["edge_index"]].T.tolist()} <= pairs
    assert (whole["train"].long() + whole["val"] + whole["test"] <= 1).all()


@pytest.mark.parametrize(
    ("peer", "package"),
    [
        ("pyg", "torch_geometric"),
        ("pytorch", "torch"),
        pytest.param("flower", "ray", marks=pytest.mark.flower),
        ("openfgl", "openfgl"),
    ],
)
def test_a_runner_learns(exported, tmp_path, peer, package):
    pytest.importorskip(package)
    (tmp_path / peer).mkdir()  # nothing is installed
    found = run_peer(peer, exported[1], tmp_path, 12, 0)
    assert found["test"] > 0.6 and 0 < found["seconds"] < 60
