"""The results of a run at a site: what its node kept, and one probability with the server."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch

import client_app
import server_app
from dance_flwr.api.prediction_table import write_results
from dance_flwr.config.tree import flatten
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError
from dance_flwr.federation.client.run_files import keep_calibration
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn import calibration
from dance_flwr.runs.simulation.in_process import InProcessGrid


@pytest.mark.parametrize(
    ("method", "personal"), [("dance", "off"), ("dance", "mix"), ("fedavg-full", "off")]
)
def test_a_node_with_its_own_data_keeps_the_final_model(
    run_config, tmp_path, monkeypatch, method, personal
):
    monkeypatch.setattr(calibration, "MIN_NODES", 1)
    monkeypatch.setattr(calibration, "_LEAST_GAIN", 0)
    config = run_config(seed=5, method=method, personal=personal)
    shutil.copytree(prepare(config).folder, tmp_path / "all")
    copy = tmp_path / "all" / "client-1"
    nodes = {
        10 + k: {"partition-id": k, "data-path": str(tmp_path / "all" / f"client-{k}")}
        for k in range(3)
    }
    grid = InProcessGrid(client_app.app, flatten(config), nodes)
    server_app.run(grid, replace(config, out=str(tmp_path / "out")), "own", tmp_path / "out")
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    with pytest.raises(UserError, match="expected the final model of other"):
        write_results(copy, "other", None, tmp_path, print)
    folder, bundle = write_results(copy, "", None, tmp_path, print)
    assert folder == tmp_path / "results" / "own"
    assert bundle.model_id == result["model_fingerprint"]
    assert (bundle.own is not None) is (personal == "mix")
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and {row["predicted"] for row in rows} <= set(result["class_names"])
    assert not any(path.stat().st_mode & 0o077 for path in copy.rglob("*"))
    # One probability: that of the federation, whose temperature came after the model.
    client, nodes = bundle.client(copy), torch.arange(24)
    probs = client.predict(RoundInfo("x", 3, "", final=True), nodes)["deployed"].double()
    temperature = result["calibration"]["temperature"]
    assert temperature != 1
    scaled = torch.softmax(probs.log() / temperature, dim=1).max(dim=1).values
    shown = [float(row["probability"]) for row in rows]
    assert shown == pytest.approx(scaled.tolist(), abs=1e-5)
    # A node that did not hear of it says so.
    facts, lines = copy / "runs" / "own" / "final.json", []
    content = json.loads(facts.read_text())
    assert content.pop("calibration")["nodes"] == result["val_nodes"]
    facts.write_text(json.dumps(content))
    _, bundle = write_results(copy, "own", tmp_path / "other", tmp_path, lines.append)
    assert "did not receive the temperature" in lines[0]
    assert bundle.calibration == calibration.Calibration()


@pytest.mark.parametrize(
    "sent",
    [(0.0, 5), (float("nan"), 5), (None, 5), ("2.0", 5), ([2.0], 5), (2.0, "5"), (2.0, None)],
)
def test_a_temperature_that_no_server_fits_is_refused(tmp_path, sent):
    file = tmp_path / "runs" / "own" / "final.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    keep_calibration(tmp_path, "other", *sent)  # of which no model was kept
    with pytest.raises(UserError, match=r"temperature: expected one from 0.125 to 8.0"):
        keep_calibration(tmp_path, "own", *sent)
    assert [path.name for path in (tmp_path / "runs").rglob("*")] == ["own", "final.json"]
    assert file.read_text() == "{}"
    keep_calibration(tmp_path, "own", 2.0, 120)
    kept = json.loads(file.read_text())["calibration"]
    assert (kept["temperature"], kept["nodes"], kept["error_after"]) == (2.0, 120, None)
