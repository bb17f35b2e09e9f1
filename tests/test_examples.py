"""Examples: those in docstrings of public functions, and the scripts of examples/."""

import doctest
import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pkgutil import walk_packages

import pytest
from support.project import PROJECT

# Packages whose public functions a reader calls directly, and how many of them show how at least.
PUBLIC = {"dance_flwr.api": 3, "dance_flwr.evidence": 4, "dance_flwr.dance": 15}


def examples_of(package):
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        loaded = import_module(module.name)
        yield from (test for test in finder.find(loaded, module.name) if test.examples)


@pytest.mark.parametrize("package", PUBLIC)
def test_examples_of_docstrings_print_what_they_say(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests = list(examples_of(package))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        report = []
        runner.run(test, out=report.append)
        assert not report, "".join(report)
    assert len(tests) >= PUBLIC[package]


@pytest.mark.parametrize(
    "script", sorted((PROJECT / "examples").glob("*.py")), ids=lambda script: script.name
)
def test_a_script_runs(script, tiny, tmp_path):
    command = [sys.executable, script, tiny, "2"]  # a tiny graph, two rounds
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy") >= 2


def test_the_loop_written_out_is_the_federation(run, run_config, capsys):
    """Round by round the same validation accuracy as the apps give."""
    spec = spec_from_file_location("fedavg", PROJECT / "examples" / "fedavg.py")
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    keys = {"clients": 3, "rounds": 3, "dance_text_refresh_every": 1}
    example.federate(run_config(**keys))
    printed = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    rounds = run(**keys).result["history"]
    assert printed == [round(row["val_accuracy"], 4) for row in rounds] and len(printed) == 3
