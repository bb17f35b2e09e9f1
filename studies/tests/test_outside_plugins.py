"""An experiment that another package brings, and the search over a method of another package."""

import subprocess
import sys

import pytest
from support.forking import Forking
from support.outside_package import OUTSIDE, SMALL, install, with_packages
from support.project import PROJECT

ENTRY_POINTS = """\
[dance_flwr.methods]
toy-method = toy_method:METHOD

[dance_flwr.datasets]
toy-data = toy_plugins:DATASET

[dance_flwr.experiments]
toy-experiment = toy_experiment:EXPERIMENT
"""
EXPERIMENT = PROJECT / "studies/tests/study_support/outside/toy_experiment.py"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site-packages")
    return install(folder, ENTRY_POINTS, EXPERIMENT, *OUTSIDE.glob("toy_*.py"))


@pytest.fixture(scope="module")
def outside(installed, tmp_path_factory):
    """A function that runs the command line where the other package is installed."""
    forking = Forking(sys.executable, tmp_path_factory.mktemp("work"), with_packages(installed))
    yield forking
    forking.close()


def test_an_experiment_is_one_file(outside):
    command = ["experiment", "toy-experiment", "--datasets", "toy-data", "--seeds", "0"]
    done = outside(*command, "--out", "study", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "toy-experiment" in outside("experiment", "--help").stdout
    tables = outside("tables", "study")
    assert tables.returncode == 0, tables.stderr
    assert "1 rows" in (outside.folder / "study" / "report" / "toy-experiment.md").read_text()


def test_the_search_knows_the_space_of_a_method_of_another_package(installed):
    code = (
        "from dance_flwr_studies.engine.tune import Search;"
        "print(Search('cora', 'toy-method', 2, 2, (0,), {}).space['toy.shrink'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env=with_packages(installed), capture_output=True, text=True
    )
    assert found.stdout.strip() == "(0.25, 0.5)", found.stderr
