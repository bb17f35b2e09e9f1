"""A run on a Ray cluster: two nodes of loopback, of which one dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.processes import Started

from dance_flwr.config.text import to_toml
from dance_flwr.data.prepare import prepare
from dance_flwr.runs.processes import free_port, private_folder
from dance_flwr.runs.result import read_result

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("engine")]
CLIENTS = 20
KEYS = {"clients": CLIENTS, "partition": "random", "method": "fedavg-full"}
PATIENCE_SECONDS = 400


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster, and the processes of its two nodes."""
    folder, port, nodes = private_folder(), free_port(), []
    local = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    address = f"127.0.0.1:{port}"
    head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1", f"--temp-dir={folder}"]
    other = [f"--address={address}", "--node-ip-address=127.0.0.1"]
    for words in ([*head, "--include-dashboard=false"], other):
        ray = Path(sys.executable).parent / "ray"
        command = [ray, "start", *words, "--num-cpus=1", "--block", "--disable-usage-stats"]
        output = (folder / f"node-{len(nodes)}.txt").open("wb")
        nodes.append(subprocess.Popen(command, env=local, stdout=output, stderr=output))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"Ray runtime started" not in Path(output.name).read_bytes():
            text = Path(output.name).read_text()
            assert time.monotonic() < deadline and nodes[-1].poll() is None, text
            time.sleep(0.2)
    yield address, nodes
    for node in nodes:
        end(node)


def end(node):
    """Kill a node at once, as a power cut does."""
    if node.poll() is not None:
        return
    family = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
    for process in family:
        if process.is_running():
            process.kill()
    node.wait()


@pytest.fixture
def begin(cluster, run_config, tmp_path):
    """A function that starts a run on the cluster; `.out` is its folder."""

    def start(**keys):
        config = run_config(**KEYS, **keys, out=str(begin_out), data_root=str(tmp_path / "root"))
        prepare(config, lambda line: None)
        (tmp_path / "config.toml").write_text(to_toml(config))
        words = ["dance-flwr", "run", "--config", tmp_path / "config.toml", "--engine", "ray"]
        begun.append(Started([*words, "--ray-address", cluster[0]], tmp_path))
        return begun[-1]

    begun, begin_out = [], tmp_path / "out"
    start.out = begin_out
    yield start
    for started in begun:
        started.kill()


def rows(out):
    """The rows of the run's history."""
    path = out / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def test_a_cluster_computes_what_one_process_does(begin, run):
    started = begin(rounds=3)
    assert started.process.wait(PATIENCE_SECONDS) == 0, started.text()
    there, here = read_result(begin.out), run(**KEYS, rounds=3).result
    assert there["model_fingerprint"] == here["model_fingerprint"]
    assert not any(row["absent"] for row in there["history"])


def test_a_node_that_dies_is_absent_for_a_round_and_the_others_go_on(begin, cluster):
    """Last of this file: the cluster has one node afterwards."""
    started = begin(rounds=5000)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(rows(begin.out)) < 3:
        assert time.monotonic() < deadline and started.process.poll() is None, started.text()
        time.sleep(0.2)
    end(cluster[1][1])
    died_after = len(rows(begin.out))
    while len(rows(begin.out)) < died_after + 20:
        assert time.monotonic() < deadline and started.process.poll() is None, started.text()
        time.sleep(0.2)
    absent = [len(row["absent"]) for row in rows(begin.out)]
    assert 0 < sum(absent) <= 2, "at most what its one worker had at hand, twice"
    assert absent[-10:] == [0] * 10 and sum(map(bool, absent)) <= 2
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(PATIENCE_SECONDS) == 130
    assert "resume with: dance-flwr run --resume" in started.text()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "nowhere:port", "::1:99999"])
def test_an_address_without_a_cluster_is_one_line(cli, run_config, tmp_path, address):
    config = run_config(rounds=1, out=str(tmp_path / "run"), data_root=str(tmp_path))
    (tmp_path / "config.toml").write_text(to_toml(config))
    words = ["--engine", "ray", "--ray-address", address]
    done = cli("run", "--config", tmp_path / "config.toml", *words)
    assert done.code == 2 and f"expected a Ray cluster at {address}" in done.err[-1]


def test_an_address_needs_the_engine(cli):
    done = cli("run", "--ray-address", "127.0.0.1:1")
    assert done.code == 2 and "expected --engine ray" in done.err[-1]
