"""Processes with TLS, node authentication, signatures and masks, each node in a network of its own:
the same run as in one.
"""

import json
import sys
import time
from dataclasses import replace

import pytest
import torch
from support.namespaces import namespaces
from support.project import PROJECT

from dance_flwr.data.prepare import prepare
from dance_flwr.runs.reader import load_model
from dance_flwr.runs.simulation import engine

sys.path.insert(0, str(PROJECT / "benchmarks"))
from local_deployment import local_deployment

CLIENTS = 3


@pytest.mark.flower
@pytest.mark.xdist_group("deployment")
def test_a_deployment_with_masks_is_the_run_of_one_process(run_config, tmp_path, monkeypatch):
    # A question after a run is a process of its own, and a slow machine is silent for long.
    monkeypatch.setattr(engine, "_STATUS_EVERY_SECONDS", 120.0)
    keys = {"rounds": 2, "evaluate_every": 2, "privacy_secure_aggregation": True}
    limits = {"node_timeout": 60.0, "round_timeout": 120.0}
    config = run_config(clients=CLIENTS, out=str(tmp_path / "there"), **keys, **limits)
    partition = prepare(config).folder
    open_config = replace(config, privacy=replace(config.privacy, secure_aggregation=False))
    here = engine.run_in_process(open_config, tmp_path / "here", lambda row: None)
    folders = [partition / f"client-{k}" for k in range(CLIENTS)]
    with (
        namespaces(CLIENTS) as network,
        local_deployment(
            tmp_path / "deployment", folders, host=network.host, launchers=network.launchers
        ) as deployment,
    ):
        begin = time.monotonic()
        signed = replace(config, node_keys=str(deployment.peer_keys))
        engine.follow(
            deployment.link, deployment.link.submit(signed), tmp_path / "there", lambda row: None
        )
        print(f"seconds of the run: {time.monotonic() - begin:.0f}, SuperLink at {network.host}")
    said = (tmp_path / "deployment" / "superlink.log").read_text(errors="replace")
    assert all(f" {address}:" in said for address in network.addresses)  # uvicorn names who asked
    there = json.loads((tmp_path / "there" / "result.json").read_text())
    assert there["partition_dir"] is None and there["privacy"]["secure_aggregation"] is True
    assert "survivors" in {row["stage"] for row in there["messages"]}  # clients signed
    left, right = load_model(tmp_path / "here"), load_model(tmp_path / "there")
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], atol=1e-4, rtol=0)
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1"):
        assert here[name] == pytest.approx(there[name], abs=1e-4)
    assert (folders[-1] / "runs" / there["run"] / "evidence" / "final.npz").is_file()
