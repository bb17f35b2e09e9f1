"""The bundle that Flower ships, and the mark by which tests know the processes of an engine.

Runs under the engine: `test_wheel.py`, `redteam/test_listeners.py` and `redteam/test_signals.py`.
"""

import io
import shutil
import zipfile
from pathlib import Path

from support.project import PROJECT


def bundle(folder):
    """The names in Flower's bundle of a folder."""
    from flwr.cli.build import build_fab_from_disk

    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))) as archive:
        return set(archive.namelist())


def test_the_bundle_holds_the_app_and_nothing_else(tmp_path):
    copy = tmp_path / "dance-flwr"
    usual = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")

    def ignore(folder, names):
        own_runs = {"runs"} if Path(folder) == PROJECT else set()  # not dance_flwr/runs
        return usual(folder, names) | own_runs

    shutil.copytree(PROJECT, copy, ignore=ignore)
    for name in (
        "notes.md",
        "dance_flwr/nodes.jsonl",
        "data/nodes.csv",
        "runs/result.json",
        "tests/test_new.py",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("{}")
    names = {name for name in bundle(copy) if not name.startswith(".info")}
    files = [
        path
        for kind in ("*.py", "*.toml", "pydocs.json")
        for path in (PROJECT / "dance_flwr").rglob(kind)
    ]
    code = {str(path.relative_to(PROJECT)) for path in files}
    manifests = {str(path.relative_to(PROJECT)) for path in (PROJECT / "partitions").glob("*.json")}
    texts = {"pyproject.toml", "README.md", "LICENSE"}
    assert code and manifests
    assert names == code | manifests | texts | {"client_app.py", "server_app.py"}
