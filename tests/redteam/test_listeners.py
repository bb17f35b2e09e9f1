"""What a run under Ray listens on: this machine alone, and for nobody without its token."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.killing import Killed, asks
from support.processes import Started, is_public

from dance_flwr.config.text import to_toml

RUNS_A_TASK = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
print(ray.get(ray.remote(num_cpus=0)(lambda: "it " + "ran").remote()))
"""


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
def test_a_run_listens_on_this_machine_alone_and_asks_for_its_token(
    run, run_config, dance, tmp_path
):
    """The run masks its updates, which changes no number of its rounds, and its terminal is closed:
    nothing is left.
    """
    with pytest.raises(Killed):
        run(folder=tmp_path / "here", rounds=5000, on_message=asks("train", 4))
    root = dance.partition.parent.parent  # of the same client folders
    keys = {"rounds": 5000, "data_root": str(root), "privacy_secure_aggregation": True}
    config = run_config(out=str(tmp_path / "out"), **keys)
    (tmp_path / "config.toml").write_text(to_toml(config))
    command = ["dance-flwr", "run", "--config", tmp_path / "config.toml", "--engine", "ray"]
    started = Started(command, tmp_path, terminal=True)
    try:
        started.wait_for(tmp_path, "out/history.jsonl")
        found = started.listeners()
        names = " ".join(name for name, _, _ in found)
        assert all(part in names for part in ("gcs_server", "raylet", "ray::"))
        assert [row for row in found if is_public(row[1])] == []
        (port,) = {port for name, _, port in found if "gcs_server" in name}
        secrets = {}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
        with started.paused("ray::"), ThreadPoolExecutor(2) as pool:
            attempts = list(pool.map(lambda secret: intrude(f"127.0.0.1:{port}", secret), secrets))
        for done in attempts:
            assert "it ran" not in done.stdout
            assert "nauthenticated" in done.stderr or "InvalidAuthToken" in done.stderr
        (private,) = started.homes()
        started.close_terminal()
        assert started.left(120) == [] and not private.exists()
        rows = zip(*(rows_of(tmp_path / name) for name in ("here", "out")), strict=False)
        for open_, masked in rows:
            for name in ("val_accuracy", "val_macro_f1", "views", "counts", "absent"):
                assert open_[name] == masked[name], (name, masked["round"])
            assert open_["loss"] == pytest.approx(masked["loss"], abs=1e-5)
    finally:
        started.kill()


def rows_of(folder):
    """The history of a run."""
    return map(json.loads, (folder / "history.jsonl").read_text().splitlines())


def intrude(address, secret):
    """Try to run a task in the cluster at an address."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return subprocess.run(
        [sys.executable, "-c", RUNS_A_TASK, address],
        env=os.environ | loopback | secret,
        capture_output=True,
        text=True,
        timeout=120,
    )
