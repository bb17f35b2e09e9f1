"""What a shell is told when a word is completed, through the protocol of typer."""

import sys
from pathlib import Path

import pytest
from support.completing import GRAPHS, completed
from support.completing import complete as complete

from dance_flwr.config.plugins import METHODS, PARTITIONERS, STRATEGIES, TRACKERS
from dance_flwr.config.tree import flat_fields

KINDS = ["methods", "partitioners", "strategies", "runs"]


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
        ("data show m", GRAPHS),
        ("config --method l", METHODS),
        ("partition make --method ", PARTITIONERS),
        ("list ", KINDS),
    ],
)
def test_names_are_completed_without_heavy_libraries(complete, line, names):
    completed(complete, line, names)


@pytest.mark.parametrize("line", ["run --method zz", "run --set nothing=", "run --out ", "demo "])
def test_where_nothing_is_known_the_shell_completes_files(complete, line):
    assert complete(line) == ([], "[]")


def test_commands_and_options_are_completed_by_the_installed_command(complete):
    script = Path(sys.executable).with_name("dance-flwr")
    assert complete("expo", [script])[0] == ["export"]
    assert complete("run --set rounds=3 --ove", [script])[0] == ["--overwrite"]
    assert complete("data show pydo", [script]) == (["pydocs"], "")
