"""What a shell is told when a word is completed, through the protocol of typer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dance_flwr_studies import EXPERIMENTS

from dance_flwr.config.plugins import DATASETS, METHODS, PARTITIONERS, STRATEGIES, TRACKERS
from dance_flwr.config.tree import flat_fields
from dance_flwr.data.graphs.catalogue import CATALOGUE

# The command itself, and then what it imported.
CODE = """
import sys
from dance_flwr.cli.main import main
sys.argv = ["dance-flwr"]
try:
    main()
finally:
    heavy = "torch", "numpy", "pyarrow", "flwr"
    print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
GRAPHS = ["mine", *DATASETS, *CATALOGUE]
KINDS = ["methods", "partitioners", "strategies", "runs"]


@pytest.fixture
def complete(tmp_path, monkeypatch):
    """A function that completes the last of the words as bash would ask for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root" / "graphs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "root"))

    def ask(line, command=(sys.executable, "-c", CODE)):
        words = ["dance-flwr", *line.split(" ")]
        asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
        env = os.environ | asked | {"_DANCE_FLWR_COMPLETE": "complete_bash"}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return done.stdout.split(), done.stderr.strip()

    return ask


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("run --method ", METHODS),
        ("run --method=fed", METHODS),
        ("run --compare ", METHODS),
        ("run --compare dance lo", METHODS),
        ("run --rounds 3 --data ", GRAPHS),
        ("run --track m", TRACKERS),
        ("run --set dance.", [f"{key}=" for key in flat_fields()]),
        ("run --set strategy=fed", [f"strategy={name}" for name in STRATEGIES]),
        ("run --set strategy = fed", STRATEGIES),
        ("run --set strategy =", STRATEGIES),
        ("prepare --set partition=l", [f"partition={name}" for name in PARTITIONERS]),
        ("run --resume ", ["latest", "runs/first"]),
        ("status ", ["latest", "runs/first"]),
        ("report runs", ["latest", "runs/first"]),
        ("evidence page l", ["latest", "runs/first"]),
        ("experiment ", EXPERIMENTS),
        ("experiment c", EXPERIMENTS),
        ("experiment hyper --datasets cora ", GRAPHS),
        ("experiment hyper --methods sfgc g", METHODS),
        ("experiment hyper --set backbone=", [f"backbone={name}" for name in ("gcn", "gat")]),
        ("tune --dataset p", GRAPHS),
        ("data show m", GRAPHS),
        ("config --method l", METHODS),
        ("partition make --method ", PARTITIONERS),
        ("list ", KINDS),
    ],
)
def test_names_are_completed_without_heavy_libraries(complete, line, names):
    found, imported = complete(line)
    start = "" if line.endswith("=") and " =" in line else line.rpartition(" ")[2]
    start = start.rpartition("=")[2] if line.startswith("run --method=") else start
    wanted = {name for name in names if name.startswith(start)}
    assert wanted and wanted <= {*found}
    assert "backbone" in line or {*found} == wanted
    assert imported == "[]"


@pytest.mark.parametrize("line", ["run --method zz", "run --set nothing=", "run --out ", "demo "])
def test_where_nothing_is_known_the_shell_completes_files(complete, line):
    assert complete(line) == ([], "[]")


def test_commands_and_options_are_completed_by_the_installed_command(complete):
    script = Path(sys.executable).with_name("dance-flwr")
    assert complete("exp", [script])[0] == ["export", "experiment"]
    assert complete("run --set rounds=3 --ove", [script])[0] == ["--overwrite"]
    assert complete("data show pydocs-ci", [script]) == (["pydocs-citations"], "")
