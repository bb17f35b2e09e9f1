"""Processes with TLS, node authentication, signatures and masks, each node in a network of its own:
the same run as in one.
"""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import SMALL
from support.namespaces import namespaces

from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy.local import local_deployment
from dance_flwr.runs.reader import load_model
from dance_flwr.runs.simulation.engine import follow, run_in_process

CLASSES = ("scipy.fft", "scipy.linalg", "scipy.ndimage", "scipy.signal", "scipy.spatial")
CLIENTS = 3
KEYS = {
    **{
        "clients": CLIENTS,
        "rounds": 2,
        "evaluate-every": 2,
        "hidden-dim": 16,
        "chunk-tokens": 32,
        "max-chunks": 2,
        "encoder": SMALL["encoder"],
    },
    **{
        "privacy.secure-aggregation": True,
        "device": "cpu",
        "node-timeout": 60.0,
        "round-timeout": 120.0,
    },
}


def part_of_pydocs(folder):
    """The nodes of pydocs-full in CLASSES and the edges among them, as a graph folder."""
    graph = load_graph("pydocs-full")
    names = np.array(graph.class_names)[graph.labels]
    kept = np.flatnonzero(np.isin(names, CLASSES))
    place = np.full(len(graph.ids), -1)
    place[kept] = np.arange(kept.size)
    rows = np.repeat(np.arange(len(graph.ids)), np.diff(graph.indptr))
    inside = (place[rows] >= 0) & (place[graph.indices] >= 0)
    indptr, indices = csr_from_pairs(place[rows[inside]], place[graph.indices[inside]], kept.size)
    labels = np.searchsorted(CLASSES, names[kept])
    texts = [graph.texts[node] for node in kept]
    part = TextGraph(
        "part", graph.ids[kept], texts, labels, CLASSES, indptr, indices, graph.split[kept]
    )
    write_folder(part, folder)
    return folder


@pytest.mark.flower
@pytest.mark.xdist_group("deployment")
def test_a_deployment_with_masks_is_the_run_of_one_process(tmp_path):
    config = parse(
        KEYS | {"data": str(part_of_pydocs(tmp_path / "graph")), "out": str(tmp_path / "there")}
    )
    partition = prepare(config).folder
    open_config = replace(config, privacy=replace(config.privacy, secure_aggregation=False))
    here = run_in_process(open_config, tmp_path / "here", lambda row: None)
    folders = [partition / f"client-{k}" for k in range(CLIENTS)]
    with (
        namespaces(CLIENTS) as network,
        local_deployment(
            tmp_path / "deployment", folders, host=network.host, launchers=network.launchers
        ) as deployment,
    ):
        begin = time.monotonic()
        signed = replace(config, node_keys=str(deployment.peer_keys))
        follow(
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
