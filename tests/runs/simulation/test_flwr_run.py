"""Flower's own command line, in an empty home, with the lines that README shows."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import uuid
from pathlib import Path

import pytest
from support.graphs import SMALL
from support.processes import MARK, marked
from support.project import PROJECT

from dance_flwr.config.text import flat_keys, toml_value
from dance_flwr.runs.result import read_result

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("engine")]
PORT = 39091  # of the SuperLink that Flower starts for a user; it has no option


@pytest.fixture(scope="module")
def flwr(tmp_path_factory, tiny):
    """A function that runs a command as in a fresh clone; `.start` submits a run of small settings.

    The SuperLink that the first run starts, and all of its processes, are ended with the module.
    """
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"somebody's SuperLink runs at port {PORT}")
    home, mark = tmp_path_factory.mktemp("home"), uuid.uuid4().hex
    clone = tmp_path_factory.mktemp("clone") / "dance-flwr"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "benchmarks", "site")
    shutil.copytree(PROJECT, clone, ignore=ignored)
    bin_ = Path(sys.executable).parent
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DANCE_", "FLWR_"))}
    environment |= {"HOME": str(home), "PATH": f"{bin_}:{os.environ['PATH']}", MARK: mark}
    environment |= {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}

    def call(*words):
        command = [bin_ / words[0], *map(str, words[1:])]
        return subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300
        )

    def start(*words, **keys):
        known = flat_keys(tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8")))
        declared = {key.removeprefix("tool.flwr.app.config.") for key in known}
        settings = {k: SMALL[k] for k in SMALL.keys() & declared - {"clients", "rounds"}}
        settings |= {"data": str(tiny)} | {k.replace("_", "-"): v for k, v in keys.items()}
        pairs = " ".join(f"{key}={toml_value(value)}" for key, value in settings.items())
        done = call("flwr", "run", ".", "--run-config", pairs, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout, re.search(r"started run (\d+)", done.stdout)[1]

    call.start, call.home, call.mark = start, home, mark
    yield call
    for _ in range(20):
        if not (left := marked(mark)):
            break
        for process in left:
            process.kill()
        time.sleep(0.2)


def status(flwr, run):
    """The status of a run in `flwr ls`."""
    return json.loads(flwr("flwr", "ls", "--run-id", run, "--format", "json").stdout)["runs"][0]


def test_a_run_has_a_client_per_supernode_and_its_log_ends_with_the_result(flwr, run):
    out, number = flwr.start("--stream", rounds=2)
    accuracy, folder, hint = re.findall(
        r"(test accuracy 0\.\d+ of \d+ nodes), macro-F1 .*\n.*result in (.*)\n.*next: (.*)\n", out
    )[0]
    assert folder.startswith(str(flwr.home)) and number in folder
    result = read_result(Path(folder))
    assert len(result["nodes_per_client"]) == 2, "Flower's default is two SuperNodes"
    assert (
        accuracy == f"test accuracy {result['test_accuracy']:.4f} of {result['test_nodes']} nodes"
    )
    assert out.count("train: received 2 results and 0 failures") == 2
    # The model of round 1 is validated by the training of round 2.
    assert out.count("validation: received 2 results and 0 failures") == 1
    of_first = result["history"][0]["val_accuracy"]
    assert f"'start-accuracy': '{of_first:.4e}'" in out
    assert f"'test-accuracy': '{result['test_accuracy']:.4e}'" in out
    assert status(flwr, number)["status"] == "finished:completed"
    shown = flwr(*hint.split())
    assert shown.returncode == 0 and f"{result['test_accuracy']:.4f}" in shown.stdout
    twin = run(rounds=2, clients=2)
    assert result["model_fingerprint"] == twin.result["model_fingerprint"]


def test_method_strategy_and_supernodes_are_chosen_on_the_command_line(flwr):
    keys = {"method": "fedavg-full", "strategy": "fedadam", "partition": "random"}
    keys |= {"evaluate-fraction": 0.5}
    out, _ = flwr.start("--stream", "--federation-config", "num-supernodes=8", rounds=1, **keys)
    result = read_result(Path(re.search(r"result in (.*)", out)[1]))
    assert (result["method"], result["strategy"]) == ("fedavg-full", "fedadam")
    assert result["config"]["clients"] == len(result["nodes_per_client"]) == 8
    assert "validation: received 4 results and 0 failures" in out


def test_a_run_can_be_watched_and_stopped(flwr):
    _, number = flwr.start(rounds=5000)
    deadline = time.monotonic() + 120
    while not list(flwr.home.glob(f".cache/dance-flwr/runs/*{number}/history.jsonl")):
        assert time.monotonic() < deadline, flwr("flwr", "log", number, "--show").stdout
        time.sleep(0.5)
    (history,) = flwr.home.glob(f".cache/dance-flwr/runs/*{number}/history.jsonl")
    assert "[ROUND 1/5000]" in flwr("flwr", "log", number, "--show").stdout
    assert flwr("flwr", "stop", number).returncode == 0
    while "running" in (shown := flwr("dance-flwr", "status", history.parent).stdout):
        assert time.monotonic() < deadline, shown
        time.sleep(0.5)
    assert "interrupted" in shown
    assert status(flwr, number)["status"] == "finished:stopped"
