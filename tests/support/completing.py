"""What a shell is told when a word is completed, through the protocol of typer."""

import json
import os
import subprocess
import sys

import pytest

from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs.catalogue import CATALOGUE
from support.help import CODE

GRAPHS = ["mine", *DATASETS, *CATALOGUE]


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


def completed(complete, line, names):
    """Assert that the last word of a line is completed to those of the names that it begins."""
    found, imported = complete(line)
    start = "" if line.endswith("=") and " =" in line else line.rpartition(" ")[2]
    start = start.rpartition("=")[2] if line.startswith("run --method=") else start
    wanted = {name for name in names if name.startswith(start)}
    assert wanted and wanted <= {*found}
    assert "backbone" in line or {*found} == wanted
    assert not {"torch", "numpy", "pyarrow", "flwr"} & {*json.loads(imported)}
