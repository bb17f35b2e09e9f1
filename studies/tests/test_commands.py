"""The commands `experiment`, `tables` and `tune`."""

import re
import subprocess
import sys

import pytest
from dance_flwr_studies import EXPERIMENTS
from dance_flwr_studies.engine.cells import Cell
from dance_flwr_studies.engine.folder import Study
from support.completing import GRAPHS, completed
from support.completing import complete as complete
from support.counted_method import QUESTIONS, register
from support.following import follow as follow
from support.following import options as options
from support.following import place as place
from support.graphs import SMALL
from support.help import modules_of_help
from support.project import PROJECT

from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import parse
from dance_flwr.data.prepare import partition_folder

ROWS = PROJECT / "studies" / "reproduction" / "results.jsonl"


def test_the_help_of_experiment_lists_all_of_them(cli):
    shown = cli("experiment", "--help").out
    assert all(f" {name} " in shown for name in EXPERIMENTS)


def test_help_imports_the_names_of_experiments_but_not_their_code():
    loaded = [name for name in modules_of_help("experiment --help") if "studies" in name]
    assert {*loaded} == {"dance_flwr_studies", "dance_flwr_studies.commands"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("experiment ", EXPERIMENTS),
        ("experiment c", EXPERIMENTS),
        ("experiment hyper --datasets c", GRAPHS),
        ("experiment hyper --methods g", METHODS),
        ("tune --dataset p", GRAPHS),
    ],
)
def test_names_are_completed_without_heavy_libraries(complete, line, names):
    completed(complete, line, names)


# Places that cannot be written to

ONE_RUN = ("--datasets", "TINY", "--methods", "local-only", "--seeds", 0, "--rounds", 1)
IN_THE_WAY = {
    "experiment": ("experiment", "main-table", *ONE_RUN, "--out", "AFILE/s"),
    "its plan": ("experiment", "main-table", *ONE_RUN, "--dry-run", "--out", "AFILE/s"),
    "experiment in a file": ("experiment", "main-table", *ONE_RUN, "--out", "AFILE"),
    "tune": ("tune", "--dataset", "TINY", "--method", "local-only", "--out", "AFILE/s"),
    "tables": ("tables", ROWS, "--out", "AFILE/r"),
    "tables in a file": ("tables", ROWS, "--out", "AFILE"),
    "exported rows": ("tables", "STUDY", "--export", "AFILE/x.jsonl"),
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that was asked for one measurement, and has not made it."""
    found = Study(tmp_path_factory.mktemp("studies") / "study")
    found.remember("complexity", "a command", [Cell({"part": "x"}, measure="x:y")])
    return found.root


@pytest.mark.parametrize("words", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_a_file_in_the_way_of_an_output_is_named_before_the_work(cli, tiny, study, tmp_path, words):
    (tmp_path / "afile").write_text("mine")
    places = {"TINY": tiny, "STUDY": study, "AFILE": tmp_path / "afile"}
    heads = [str(word).partition("/") for word in words]
    done = cli(*(f"{places.get(head, head)}{slash}{end}" for head, slash, end in heads))
    expected = f"error: {tmp_path / 'afile'}: expected a folder, found a file; choose another "
    assert done.code == 2 and done.err == [expected + words[-2]] and not done.out, done
    assert {path.name for path in tmp_path.iterdir()} == {"afile"}


def test_tables_into_no_file_is_refused_before_the_work(cli, study, tmp_path):
    done = cli("tables", study, "--out", tmp_path / "r", "--into", tmp_path / "none.md")
    assert done.code == 2 and not done.out, done
    assert done.err == [
        f"error: --into: expected a Markdown file, found none at {tmp_path / 'none.md'}"
    ]
    assert not list(tmp_path.iterdir())


def test_an_experiment_says_what_its_runs_would_ask(cli, tiny, tmp_path, monkeypatch):
    register(monkeypatch, "toy-asking")
    monkeypatch.chdir(tmp_path)
    pairs = [f"--set={key}={value}" for key, value in SMALL.items() if "ratio" not in key]
    words = ["main-table", "--datasets", str(tiny), "--methods", "toy-asking", "fedavg-full"]
    done = cli("experiment", *words, "--seeds", "97", "98", *pairs, "--dry-run")
    assert done.code == 0, done.err
    (total,) = [line for line in done.out.splitlines() if line.startswith("model calls")]
    numbers = [int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*", total)]
    assert numbers == [2 * 3 * QUESTIONS, 2 * 180, 2]
    assert "3 3 3" in done.out and not (tmp_path / "study").exists()
    # Seeds of this test alone: other tests of the process ask in the partition of the default one.
    config = parse({"data": str(tiny), **SMALL, "method": "toy-asking", "seed": 97})
    folder = partition_folder(config)
    assert not list(folder.glob("client-*/llm"))
    assert not list(folder.glob("client-*/runs/*/llm*"))
    without = cli("experiment", *words[:-2], "fedavg-full", *pairs, "--dry-run")
    assert without.code == 0 and "model calls" not in without.out


PROGRAMS = [*(PROJECT / "studies" / "benchmarks").glob("*.py")]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_benchmark_starts(path):
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
