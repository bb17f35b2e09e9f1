"""However a run is stopped, nothing that it started goes on."""

import re
import shutil
import signal
import subprocess
import sys

import pytest
from support.stopping import PATIENCE_SECONDS
from support.stopping import begin as begin
from support.stopping import data_root as data_root

from dance_flwr.config.text import to_toml
from dance_flwr.runs.result import read_history

DELETED = "deleted --out"


@pytest.fixture
def begin_run(begin, run_config, data_root, tmp_path):
    """A function that starts a long run and waits for its first round."""

    def start(*options):
        config = run_config(rounds=5000, out=str(tmp_path / "out"), data_root=str(data_root))
        (tmp_path / "config.toml").write_text(to_toml(config))
        command = ["dance-flwr", "run", "--config", tmp_path / "config.toml", *options]
        return begin(command, "out/history.jsonl")

    return start


def end(started, way, out):
    if way == DELETED:
        shutil.rmtree(out, ignore_errors=True)  # the run may be writing there
    else:
        started.process.send_signal(getattr(signal, way))


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("way", ["SIGKILL", DELETED])
def test_nothing_of_an_engine_is_left(begin_run, tmp_path, way):
    """The terminal of the engine of `test_listeners.py` is closed, as if by SIGINT or SIGTERM."""
    started = begin_run("--engine", "ray")
    assert len(started.look()) > 8, "an engine is many processes"
    private = started.homes()
    end(started, way, tmp_path / "out")
    patience = 15 if way == "SIGKILL" else PATIENCE_SECONDS  # what is killed can clean up nothing
    assert started.left(patience) == []
    assert private and not any(home.exists() for home in private)
    if way == DELETED:
        says_that_it_was_removed(started, tmp_path / "out")


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
def test_a_client_whose_process_is_killed_is_absent_once(begin, run_config, data_root, tmp_path):
    """As the kernel does for want of memory; another process takes its place."""
    keys = {"out": str(tmp_path / "out"), "data_root": str(data_root), "method": "fedavg-full"}
    config = run_config(rounds=40, min_valid_replies=2, **keys)
    (tmp_path / "config.toml").write_text(to_toml(config))
    command = ["dance-flwr", "run", "--config", tmp_path / "config.toml", "--engine", "ray"]
    started = begin(command, "out/history.jsonl")
    workers = [each for each in started.look() if "ray::ClientAppActor" in each.cmdline()[0]]
    workers[0].kill()
    assert started.process.wait(PATIENCE_SECONDS) == 0, started.text()
    rows = read_history(tmp_path / "out")
    (row,) = [row for row in rows if row.absent]
    (reason,) = row.absent.values()
    assert "its process ended, perhaps killed for its memory" in reason and len(reason) < 100
    assert len(rows) == 40 and row.round < 40


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("name", ["DashboardAgent", "gcs_server"])
def test_a_run_whose_ray_is_killed_says_so_and_is_resumed(
    begin, run_config, data_root, tmp_path, name
):
    """An agent takes Ray's raylet with it; Ray itself would wait without end, or exit."""
    keys = {"out": str(tmp_path / "out"), "data_root": str(data_root), "method": "fedavg-full"}
    (tmp_path / "config.toml").write_text(to_toml(run_config(rounds=30, **keys)))
    command = ["dance-flwr", "run", "--config", tmp_path / "config.toml", "--engine", "ray"]
    started = begin(command, "out/history.jsonl")
    server = next(each for each in started.look() if name in "".join(each.cmdline()[:1]))
    server.kill()
    assert started.process.wait(PATIENCE_SECONDS) == 2, started.text()
    last = started.text().replace("\r", "\n").splitlines()[-1]
    assert re.match(r"error: expected Ray's (raylet|gcs_server) .*gone.*; resume with:", last)
    assert started.left(PATIENCE_SECONDS) == []
    again = begin([*command[:2], "--resume", tmp_path / "out"], "out/result.json")
    assert again.process.wait(PATIENCE_SECONDS) == 0, again.text()


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
def test_lost_replies_of_a_killed_ray_are_not_given_as_the_cause(run_config, data_root, tmp_path):
    config = run_config(out="", data_root=str(data_root))
    (tmp_path / "config.toml").write_text(to_toml(config))
    command = [sys.executable, "-c", FAILS_FIRST, tmp_path / "config.toml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Ray's raylet to run until the end, found it gone" in done.stderr.splitlines()[-1]


FAILS_FIRST = """
import sys, psutil
from pathlib import Path
from dance_flwr.config.text import read_config
from dance_flwr.errors import UserError
from dance_flwr.runs.simulation import ray_engine
with ray_engine.apps():
    import server_app

def fail(*_, **__):
    raylet = next(each for each in psutil.Process().children() if each.name() == "raylet")
    raylet.kill()
    raylet.wait()
    raise UserError("expected 3 valid replies, found 1")

ray_engine._WATCH_SECONDS, server_app.run = 600, fail
ray_engine.run_under_ray(read_config([Path(sys.argv[1])], [], {}), Path(), print)
"""


def says_that_it_was_removed(started, out):
    """Whether the end of a run whose folder was removed is one line."""
    assert started.process.wait(PATIENCE_SECONDS) == 2
    lines = started.text().replace("\r", "\n").splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == lines[-1:] and "found it removed" in errors[0]
    assert "Traceback" not in started.text()
    assert not (out / "result.json").exists()


@pytest.mark.parametrize("way", ["SIGTERM", DELETED])
def test_nothing_of_a_run_in_one_process_is_left(begin_run, tmp_path, way):
    """SIGINT and a closed terminal raise what SIGTERM raises, `process_tree.stopping_in_order`."""
    started = begin_run()
    assert started.listeners() == []
    end(started, way, tmp_path / "out")
    assert started.left(PATIENCE_SECONDS) == []
    if way == DELETED:
        says_that_it_was_removed(started, tmp_path / "out")
    else:
        assert started.process.wait(PATIENCE_SECONDS) == 130
        assert "resume with: dance-flwr run --resume" in started.text()
