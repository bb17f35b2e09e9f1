"""What a shell is told when a word is completed, through the protocol of typer."""

import sys
from pathlib import Path

import pytest
from support.completing import GRAPHS, completed
from support.completing import complete as complete

from dance_flwr.config.plugins import METHODS, PARTITIONERS, TRACKERS

KINDS = ["methods", "graphs", "runs", "keys"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("run --method ", METHODS),
        ("run --compare ", METHODS),
        ("run --rounds 3 --data ", GRAPHS),
        ("run --track m", TRACKERS),
        ("run --resume ", ["latest", "runs/first"]),
        ("evidence page l", ["latest", "runs/first"]),
        ("data show m", GRAPHS),
        ("partition --method ", PARTITIONERS),
        ("list ", KINDS),
    ],
)
def test_names_are_completed_without_heavy_libraries(complete, line, names):
    completed(complete, line, names)


def test_commands_and_options_are_completed_by_the_installed_command(complete):
    script = Path(sys.executable).with_name("dance-flwr")
    assert complete("expo", [script])[0] == ["export"]
    assert complete("run --set rounds=3 --ove", [script])[0] == ["--overwrite"]
    assert complete("data show pydo", [script]) == (["pydocs"], "")
