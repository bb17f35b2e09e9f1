"""What the command line says of rivals and studies where their packages are not installed."""

import subprocess
import sys

import pytest

from dance_flwr.cli.main import STUDIES
from dance_flwr.config.plugins import METHODS, RIVALS

# The command line of a process that finds no entry point of another package.
CODE = """
import importlib.metadata as metadata, sys
metadata.entry_points = lambda **_: ()
from dance_flwr.cli.main import main
sys.argv[0] = "dance-flwr"
main()
"""


@pytest.fixture
def alone(monkeypatch):
    """The registry of methods without those of other packages."""
    monkeypatch.setitem(vars(METHODS), "_external", {})


@pytest.mark.parametrize("command", STUDIES)
def test_a_command_of_studies_names_its_package(command):
    done = subprocess.run(
        [sys.executable, "-c", CODE, command, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"error: dance-flwr {command}: " in done.stderr
    assert "`pip install dance-flwr-studies`" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--set", "method=gcond"),
        ("run", "--method", "gcond"),
        ("run", "--compare", "gcond"),
        ("run", "--config", "own.toml"),
        ("prepare", "--set", "method=gcond"),
        ("config", "--method", "gcond"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_rival_names_its_package(alone, cli, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('method = "gcond"\n[condense]\nsteps = 3\n')
    done = cli(*words)
    assert done.code == 2 and len(done.err) == 1 and not done.out, done
    assert "'gcond' of dance-flwr-rivals, which is not installed" in done.err[0]
    assert "`pip install dance-flwr-rivals`" in done.err[0]
    assert {path.name for path in tmp_path.iterdir()} == {"own.toml"}


def test_the_list_of_methods_has_no_rival(alone, cli):
    named = {line.split()[0] for line in cli("list", "methods").out.splitlines()}
    assert named == {*METHODS.builtin} and not named & {*RIVALS}
