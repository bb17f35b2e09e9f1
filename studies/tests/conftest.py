"""Studies of tests run in this process, on the small settings of rivals too."""

from pathlib import Path

import pytest
from dance_flwr_studies.engine import estimate, runner
from dance_flwr_studies.engine.start import start
from rival_support.settings import SMALL_RIVALS
from study_support.inline import Inline
from support.graphs import SMALL

SMALL |= SMALL_RIVALS
QUICK = {**SMALL, "rounds": 1, "local-epochs": 1}


@pytest.fixture(scope="session")
def pairs():
    """KEY=VALUE of small runs of one round."""
    return [f"{key}={value}" for key, value in QUICK.items() if key != "condensation-ratio"]


@pytest.fixture(scope="session", autouse=True)
def quick_estimates():
    """No grid is estimated from the committed rows, which takes a second to read."""
    estimate.COMMITTED = Path("absent.jsonl")


@pytest.fixture
def inline(monkeypatch):
    """The executor that runs the tasks of a grid in this process, and has run none."""
    monkeypatch.setattr(Inline, "done", [])
    monkeypatch.setattr(Inline, "stop_before", None)
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Inline)
    return Inline


@pytest.fixture
def go(tiny, tmp_path, inline, pairs):
    """A function that starts an experiment on the tiny graph and returns its exit code."""

    def call(name, *more, out="study", datasets=(str(tiny),), seeds=(0,), **options):
        asked = {"datasets": datasets, "seeds": seeds}
        asked |= {key: options.pop(key, None) for key in ("methods", "ratios")}
        command = f"dance-flwr experiment {name}"
        return start(name, asked, [*pairs, *more], tmp_path / out, command=command, **options)

    return call
