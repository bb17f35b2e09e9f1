"""What another package brings through entry points, as CONTRIBUTING tells its author."""

import json
import re
import sys
from pathlib import Path

import pytest
from support.forking import Forking
from support.outside_package import OUTSIDE, SMALL, install, with_packages

ENTRY_POINTS = """\
[dance_flwr.methods]
toy-method = toy_method:METHOD

[dance_flwr.strategies]
toy-strategy = toy_plugins:strategy

[dance_flwr.partitioners]
toy-partition = toy_plugins:assign

[dance_flwr.datasets]
toy-data = toy_plugins:DATASET

[dance_flwr.chunk_rules]
toy-rule = toy_plugins:best_chunk

[dance_flwr.trackers]
toy-tracker = toy_plugins:track
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    return install(folder, ENTRY_POINTS, *OUTSIDE.glob("toy_*.py"))


@pytest.fixture(scope="module")
def outside(installed, tmp_path_factory):
    """A function that runs the command line where the other package is installed."""
    work = tmp_path_factory.mktemp("work")
    forking = Forking(sys.executable, work, with_packages(installed))
    yield forking
    forking.close()


def test_a_method_is_one_file(outside):
    out = outside.folder / "run"
    keys = ["method=toy-method", "toy.shrink=0.25", "toy.rounds-off=1"]
    done = outside(
        *("run", "--data", "toy-data", "--out", str(out)),
        *(f"--set={key}" for key in keys),
        *SMALL,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["method"] == result["strategy"] == "toy-method"
    assert result["config"]["toy.shrink"] == 0.25
    counts = [row["counts"]["toy-shares"] for row in result["history"]]
    assert counts == pytest.approx([1000 * 3 * 0.6 * 0.25] * 2, abs=100)


def test_its_keys_are_checked_and_listed(outside):
    wrong = outside("run", "--set=method=toy-method", "--set=toy.shrink=2")
    assert wrong.returncode == 2
    assert "toy.shrink: expected a number > 0 and <= 1, found 2" in wrong.stderr
    own = outside("list", "keys", "toy-method").stdout
    assert re.search(r"^\| `toy\.rounds-off` \| `0` \|", own, re.MULTILINE)
    listed = outside("list", "keys").stdout
    assert "toy-method" in next(
        line for line in listed.splitlines() if line.startswith("| `method`")
    )


def test_a_strategy_a_partitioner_a_data_set_and_a_tracker_are_one_object_each(outside):
    out = outside.folder / "another"
    done = outside(
        *("run", "--data", "toy-data", "--out", str(out)),
        *("--set=method=fedavg-full", "--set=strategy=toy-strategy"),
        *("--set=partition=toy-partition", "--track", "toy-tracker", *SMALL),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["strategy"] == "toy-strategy"
    assert result["nodes_per_client"] == [10, 10, 10]
    kept = json.loads((outside.folder / "toy.json").read_text())
    assert [row["loss"] for row in kept["rounds"]] == [row["loss"] for row in result["history"]]
    assert kept["final"]["final/test_accuracy"] == result["test_accuracy"]


def test_a_rule_of_chunks_changes_selection_and_training(outside):
    """Under the paper's rules, where training chooses among all candidates again."""
    counts, losses = {}, {}
    for rule in ("entmax", "toy-rule"):
        out = outside.folder / f"by-{rule}"
        keys = ("dance.chunk-rule=" + rule, "dance.paper-rules=true", "condensation-ratio=0.5")
        done = outside(
            *("run", "--data", "toy-data", "--out", str(out)),
            *(f"--set={key}" for key in keys),
            *SMALL,
        )
        assert done.returncode == 0, done.stderr
        history = json.loads((out / "result.json").read_text())["history"]
        counts[rule] = [row["counts"] for row in history]
        losses[rule] = [row["loss"] for row in history]
    for row in counts["toy-rule"]:
        assert row["evidence-chunks"] == row["condensed-nodes"]
    assert counts["entmax"][0]["evidence-chunks"] > counts["toy-rule"][0]["evidence-chunks"]
    assert losses["entmax"] != losses["toy-rule"]
