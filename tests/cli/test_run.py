"""What `dance-flwr run` prints of a result, and the options that `partition` shares with it."""

import json
import re
import shutil

import pytest
from support.graphs import SMALL

from dance_flwr.api.evaluation import Comparison
from dance_flwr.data.prepare import prepare
from dance_flwr.terminal import duration


def test_partition_makes_what_a_run_with_the_same_options_finds(cli, tiny, run_config):
    keys = ("encoder", "encoder-precision", "chunk-tokens", "max-chunks")
    texts = [f"--set={key}={SMALL[key]}" for key in keys]
    done = cli("partition", "--data", tiny, "--clients", 2, "--seed", 77, *texts)
    assert done.code == 0 and "(made: 2 clients" in done.out
    said = []
    folder = prepare(run_config(clients=2, seed=77), said.append).folder
    assert str(folder) in done.out and not any("made" in line for line in said)


@pytest.fixture
def words(tiny):
    """The options of a run of two rounds on the tiny graph."""
    pairs = {**SMALL, "rounds": 2, "clients": 3}
    return ["--data", tiny, *(f"--set={key}={v}" for key, v in pairs.items())]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a run beside another method, and what it printed once it was made."""
    return tmp_path_factory.mktemp("made"), []


@pytest.fixture
def compared(made, cli, words, tmp_path, monkeypatch):
    """What a run beside another method printed; its folder, a copy of one, is unnamed."""
    folder, printed = made
    if not printed:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("DANCE_FLWR_HOME", str(folder))
        done = cli("run", *words, f"--set=data-root={folder}", "--compare", "local-only")
        assert done.code == 0, done.err
        printed.append(done.out)
    runs, home = shutil.copytree(folder / "runs", tmp_path / "runs"), tmp_path / "home"
    (home / "state").mkdir(parents=True)
    latest = (folder / "state" / "latest-run").read_text()
    (home / "state" / "latest-run").write_text(latest.replace(str(folder), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANCE_FLWR_HOME", str(home))
    return printed[0], sorted(runs.iterdir())


def test_a_run_says_what_happens_and_what_came_of_it(compared, cli, words):
    out, (folder, alone) = compared
    first, *lines = out.splitlines()
    # No time: nothing is known of it before the first rounds.
    assert first == "3 clients train one model with dance on the 72 texts of tiny in 2 rounds"
    starts = [line.split(maxsplit=1)[0] for line in lines if line and line[0] != " "]
    said = ["texts", "training", "training", "accuracy", "left", "never", "Next:"]
    assert starts == said
    result, other = (json.loads((run / "result.json").read_text()) for run in (folder, alone))
    assert f"{result['test_accuracy']:.1%} of {result['test_nodes']} test nodes" in out
    largest = max(result["test_by_class"]["nodes"]) / result["test_nodes"]
    assert f"{largest:.1%} if all were called" in out
    assert f"{other['test_accuracy']:.1%} by each client alone: " in out
    assert " points)" in out and "72 texts (" in out
    # What a beginner need not read is in `report`.
    plain = out.replace(folder.name, "RUN")
    assert not re.search(r"[0-9a-f]{12}|\d{8}-\d{6}|\bpacks?\b", plain)


def test_seconds_are_those_of_the_rounds_wherever_they_are_said(compared, cli):
    out, (folder, alone) = compared
    for run, name in ((folder, "dance"), (alone, "local-only")):
        result = json.loads((run / "result.json").read_text())
        total = sum(row["round_seconds"] for row in result["history"])
        assert result["seconds_total"] == pytest.approx(total)
        assert re.search(rf"^training +{name}, 2 rounds, .*, {duration(total)}$", out, re.MULTILINE)
        for command in ("status", "report"):
            assert f"\ntime        {duration(total)} in 2 rounds, " in cli(command, run).out


def test_latest_is_the_run_that_was_compared(compared, cli):
    out, (folder, _) = compared
    shown = cli("status", "latest").out
    assert str(folder) in shown and "finished" in shown
    commands = re.findall(r"^  dance-flwr (.*?) +#", out, re.MULTILINE)
    assert commands == ["evidence page latest", "report latest", "report latest --privacy"]
    for command in commands:
        done = cli(*command.split())
        assert done.code == 0, (command, done.err)
    details = cli("report", "latest").out
    assert "tokens      encoder" in details and str(folder / "result.json") in details
    shutil.rmtree(folder)
    done = cli("status", "latest")
    assert done.code == 2 and "latest: expected a run of this user, found that" in done.err[0]


def test_a_report_compares_with_runs_that_are_named(compared, cli):
    out, (folder, alone) = compared
    done = cli("report", folder, alone)
    assert done.code == 0
    (verdict,) = (line for line in out.splitlines() if "% by each client alone: " in line)
    assert done.out.splitlines()[-1] == f"{alone.name}: {verdict.strip()}"
    assert "than dance" not in Comparison("dance", "dance", 0.5, 0.9, 99, 0.1).verdict
    assert cli("report", folder, folder.parent / "none").code == 2
