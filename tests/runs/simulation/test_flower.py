"""The app under Flower's simulation engine, and the bundle that Flower ships."""

import io
import json
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import psutil
import pytest
import torch
from support.project import PROJECT

from dance_flwr.config.text import to_toml
from dance_flwr.runs.checkpoint import CHECKPOINT
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.reader import load_model

pytestmark = pytest.mark.xdist_group("engine")  # one at a time: each fills both cores
MARK = "DANCE_FLWR_TEST_MARK"


def marked(value):
    """The processes that inherited this mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def under_flower(config, folder):
    """`dance-flwr run` through the engine; returns the finished process and the names of what it
    left running.
    """
    (folder / "config.toml").write_text(to_toml(config))
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "HOME": str(folder)}
    command = [
        str(Path(sys.executable).parent / "dance-flwr"),
        "run",
        "--config",
        str(folder / "config.toml"),
    ]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600
    )
    left = marked(mark)
    names = [process.name() for process in left]
    for process in left:
        process.kill()
    return done, names


def test_the_mark_finds_processes(tmp_path):
    mark = uuid.uuid4().hex
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | {MARK: mark}
    )
    try:
        assert [process.pid for process in marked(mark)] == [child.pid]
    finally:
        child.communicate(b"\n")
    assert marked(mark) == []


@pytest.mark.flower
def test_the_engine_and_this_process_give_the_same_run(run, run_config, tmp_path):
    here = run(clients=5)
    config = run_config(
        clients=5, out=str(tmp_path / "out"), data_root=str(here.partition.parent.parent)
    )
    done, left = under_flower(config, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert left == [] and not is_locked(tmp_path / "out")
    assert not (tmp_path / "out" / CHECKPOINT).exists()  # forgotten after the result is written
    there = json.loads((tmp_path / "out" / "result.json").read_text())
    assert there["partition_dir"] == str(here.partition) and there["run"] != here.result["run"]
    for name in ("loss", "val_accuracy", "val_macro_f1"):
        rows = [[row[name] for row in result["history"]] for result in (here.result, there)]
        assert rows[0] == pytest.approx(rows[1], abs=1e-6)
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1", "best_round"):
        assert here.result[name] == pytest.approx(there[name], abs=1e-6)
    assert [row["bytes_up"] for row in here.result["history"]] == [
        row["bytes_up"] for row in there["history"]
    ]
    left_model, right_model = load_model(here.folder), load_model(tmp_path / "out")
    assert left_model.keys() == right_model.keys()
    for name, tensor in left_model.items():
        torch.testing.assert_close(tensor, right_model[name], atol=1e-6, rtol=0)
    assert (
        here.partition / "client-4" / "runs" / there["run"] / "evidence" / "final.npz"
    ).is_file()
    assert f"{there['test_accuracy']:.1%}" in done.stdout


def bundle(folder):
    """The names in Flower's bundle of a folder."""
    from flwr.cli.build import build_fab_from_disk

    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))) as archive:
        return set(archive.namelist())


def test_the_bundle_holds_the_app_and_nothing_else(tmp_path):
    copy = tmp_path / "dance-flwr"
    usual = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")

    def ignore(folder, names):
        own_runs = {"runs"} if Path(folder) == PROJECT else set()  # not dance_flwr/runs
        return usual(folder, names) | own_runs

    shutil.copytree(PROJECT, copy, ignore=ignore)
    for name in (
        "notes.md",
        "dance_flwr/nodes.jsonl",
        "data/nodes.csv",
        "runs/result.json",
        "tests/test_new.py",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("{}")
    names = {name for name in bundle(copy) if not name.startswith(".info")}
    code = {str(path.relative_to(PROJECT)) for path in (PROJECT / "dance_flwr").rglob("*.py")}
    manifests = {str(path.relative_to(PROJECT)) for path in (PROJECT / "partitions").glob("*.json")}
    texts = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "dance_flwr/study/reports/paper_numbers.toml",
    }
    assert code and manifests
    assert names == code | manifests | texts | {"client_app.py", "server_app.py"}
