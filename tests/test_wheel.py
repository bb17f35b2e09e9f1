"""A wheel holds everything that a run needs, and works where there is no checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import uuid
import venv
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from support.documents import commands_of
from support.files_of_tools import write_files_of_tools
from support.forking import Forking
from support.graphs import SMALL
from support.processes import MARK, marked, wait_until
from support.project import PROJECT

from dance_flwr.cli.main import STUDIES
from dance_flwr.data.card import read_ids
from dance_flwr.fingerprint import provenance
from dance_flwr.runs.checkpoint import CHECKPOINT
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.result import read_result

pytestmark = pytest.mark.long
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
    done = subprocess.run([*command, PROJECT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that calls the command of an environment with the wheel, in another folder."""
    home, work = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # What else is installed here, behind the wheel; a checkout that is installed editable is named
    # by a .pth file there, which is not read.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("rivals", "studies"):  # installed editable, too; their entry points are seen
        package = PROJECT / name / f"dance_flwr_{name}"
        (packages / package.name).symlink_to(package)
    for script in Path(sysconfig.get_path("scripts")).glob("fl*"):  # Flower's own commands
        _, _, rest = script.read_text("utf-8").partition("\n")
        copy = home / "bin" / script.name
        copy.write_text(f"#!{home}/bin/python\n{rest}", encoding="utf-8")
        copy.chmod(0o755)
    code = "from dance_flwr.cli.main import main; main()"

    def call(*words, code=code, **more):
        command = [home / "bin" / "python", "-P", "-c", code, *map(str, words)]
        environment = ENVIRONMENT | more
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)

    call.folder, call.work, call.python = packages, work, home / "bin" / "python"
    return call


@pytest.fixture(scope="module")
def forked(installed):
    """A function that does the same in copies of one process, which has loaded the libraries."""
    forking = Forking(installed.python, installed.work, ENVIRONMENT)
    yield forking
    forking.close()


def sets(pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def test_a_wheel_has_what_pages_are_made_of(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = PROJECT / "dance_flwr" / "pages"
    made_of = [*pages.glob("templates/*"), *pages.glob("static/*")]
    assert len(made_of) > 5
    assert {path.relative_to(PROJECT).as_posix() for path in made_of} <= names


def test_a_wheel_leaves_nothing_beside_its_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    (info,) = tops - {"dance_flwr"}
    assert info.endswith(".dist-info") and "dance_flwr/py.typed" in names


def test_its_metadata_name_no_package_of_a_simulation(wheel):
    (path,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    lines = zipfile.ZipFile(wheel).read(path).decode().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not any("ray" in line.split(":")[1].split(">")[0].split() for line in needed)
    assert "Author: dance-flwr contributors" in lines


def test_its_code_has_the_provenance_of_the_checkout(installed):
    done = installed(code="from dance_flwr.fingerprint import provenance; print(provenance())")
    assert done.stdout.strip() == provenance(), done.stderr


def test_version_and_keys(forked):
    assert forked("--version").stdout.startswith("dance-flwr ")
    assert "| `dance.mix` |" in forked("list", "keys", "dance").stdout


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
def test_ray_computes_what_one_process_does(installed, forked, tiny):
    """To the last bit, from a wheel and whatever lies in the working folder; nothing is left."""
    words = ["run", "--data", tiny, *sets(f"{k}={v}" for k, v in SMALL.items() if k != "rounds")]
    words += ["--rounds", 2, "--out"]
    assert forked(*map(str, words), "results/one").returncode == 0
    for name in ("client_app.py", "torch.py", "numpy.py"):
        (installed.work / name).write_text("raise RuntimeError('of another project')")
    mark = uuid.uuid4().hex
    done = installed(*words, "results/ray", "--engine", "ray", **{MARK: mark})
    assert done.returncode == 0, done.stderr
    for name in ("client_app.py", "torch.py", "numpy.py"):
        (installed.work / name).unlink()
    folders = [installed.work / "results" / name for name in ("one", "ray")]
    left, right = map(read_result, folders)
    assert left["model_fingerprint"] == right["model_fingerprint"] and left["run"] != right["run"]
    for key in ("loss", "val_accuracy", "val_macro_f1", "bytes_up", "bytes_down"):
        rows = [[row[key] for row in result["history"]] for result in (left, right)]
        assert rows[0] == rows[1], key
    # Forgotten after the result is written.
    assert not is_locked(folders[1]) and not (folders[1] / CHECKPOINT).exists()
    wait_until(lambda: not marked(mark), 15)


def test_every_command_of_the_readme_works_from_a_wheel(installed, forked, tiny):
    """As printed, the run first, with names of this folder for the reader's own; one round.

    Data of a network is not there: that command says so and nothing else.
    """
    studies = entry_points(group="dance_flwr.commands")
    commands = [
        words
        for words in commands_of(PROJECT / "README.md")
        if studies or words[0] not in STUDIES  # of a package that may not be here
    ]
    commands.sort(key=lambda words: words[0] != "run")
    mine, run = installed.work / "mine", "results/mine"
    shutil.copytree(tiny, mine)
    write_files_of_tools(installed.work)
    pairs = [f"{key}={value}" for key, value in SMALL.items() if "ratio" not in key]
    places = {"RUN": run, "$RUN": run, "path/to/folder": str(mine), "FILE_OR_FOLDER": str(mine)}
    places |= {"cora": str(mine), "citeseer": str(mine), "100": "1", "20": "1"}
    failed = []
    for words in commands:
        given = [places.get(word, word) for word in words]
        if words[0] == "run" or words[:2] == ["experiment", "main-table"]:
            given += sets(pair for pair in pairs if "rounds" not in pair)
        if words[0] == "experiment":
            given += ["--rounds", 1, "--seeds", 0]
        if words[:2] == ["partition", "from-manifest"]:
            cora = os.environ.get("DANCE_FLWR_CORA")
            given[2:] = [given[2], "--data", cora] if cora else ["sites", "--data", str(mine)]
        if words[0] == "export":  # of another section
            shutil.rmtree(installed.work / "bundle", ignore_errors=True)
            for path in (*installed.work.glob("predictions*"), *installed.work.glob("evidence*")):
                path.unlink()
        done = forked(*map(str, given))
        if done.returncode and "cannot be downloaded" not in done.stderr:
            failed.append(f"{' '.join(words)}: {done.stderr}")
        if words[0] == "run" and "--out" in words and "$DATA" not in places:
            result = json.loads((installed.work / run / "result.json").read_text())
            assert result["provenance"] == provenance()
            client = Path(result["partition_dir"]) / "client-1"
            places |= {"$DATA": str(client), "FOLDER": str(client), "ID": read_ids(client)[0]}
    assert not failed, "\n".join(failed)
