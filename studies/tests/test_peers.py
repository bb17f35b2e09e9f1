"""The benchmark of peers: exported tensors are those of the clients, and its runners learn.

`PEER_PACKAGES` names the folder `packages` that `compare.py` leaves, to try the peers in it.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from support.project import PROJECT

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.prepare import load, prepare

sys.path.insert(0, str(PROJECT / "studies" / "benchmarks" / "peers"))

import compare
from compare import export, run_peer, tables

PACKAGES = Path(os.environ.get("PEER_PACKAGES", "packages"))


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
    ("peer", "least"),
    [
        ("pyg", 0.6),
        ("pytorch", 0.6),
        pytest.param("flower", 0.6, marks=pytest.mark.flower),
        ("openfgl", 0.6),
        ("fedscope", 0.6),
        pytest.param("fedgraph", 0.3, marks=pytest.mark.flower),  # by its slow SGD
    ],
)
def test_a_runner_learns(exported, peer, least):
    if peer in compare.PACKAGES and not (PACKAGES / peer).is_dir():
        pytest.skip("PEER_PACKAGES does not name a folder with it")
    found = run_peer(peer, exported[1], PACKAGES, 12, 0)
    assert found["test"] > least and 0 < found["seconds"] < 60


@pytest.mark.parametrize(
    ("wanted", "why"), [("{}/absent.whl", "ERROR: "), ("git+{}/absent", "fatal: ")]
)
def test_a_peer_that_cannot_be_installed_is_left_out_in_one_line(
    exported, monkeypatch, tmp_path, capsys, wanted, why
):
    monkeypatch.setitem(compare.PACKAGES, "openfgl", (wanted.format(tmp_path.as_uri()),))
    monkeypatch.setattr(compare, "parse", lambda values: exported[0])
    names = ["openfgl", "pyg"]
    found = compare.measured({}, 1, tmp_path, names)
    assert names == ["pyg"] and found["openfgl"] == [] and len(found["pyg"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and f"openfgl is left out, as it cannot be installed: {why}" in said[0]
    lines = tables({"cora": found}, ["openfgl", "pyg"])
    assert "| OpenFGL 1.1, FedAvg | - |" in lines
    assert sum(line.endswith("%) |") for line in lines) == 1


def test_a_ratio_is_that_of_two_medians():
    rows = {"fedavg-full": (3.0, 1.0, 2.0), "openfgl": (4.0, 5.0, 3.0)}
    found = {
        name: [{"test": 0.5, "seconds": value} for value in values] for name, values in rows.items()
    }
    assert "| `fedavg-full`, in process / OpenFGL 1.1, FedAvg | 0.50 |" in tables({"x": found}, [])
