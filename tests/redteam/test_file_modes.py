"""Another user of the machine, who looks for texts, keys, salts and states of a run."""

import os
import stat

import pytest

from dance_flwr.data.prepare import prepare
from dance_flwr.deploy.checks import CHECKS, Node, run_checks


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder):
    return {path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077}


def test_no_other_user_can_open_a_file_of_a_run(
    run, run_config, tmp_path, usual_umask, monkeypatch
):
    monkeypatch.setenv("DANCE_FLWR_LOG", "json")  # with the lines of its log
    root = tmp_path / "home"
    keys = {"rounds": 1, "data_root": str(root)}
    folder = prepare(run_config(**keys)).folder
    finished = run(folder=tmp_path / "out", privacy_secure_aggregation=True, **keys)
    files = [path for path in (root, finished.folder) for path in path.rglob("*") if path.is_file()]
    assert finished.partition == folder and len(files) > 60
    assert (finished.folder / "events.jsonl").is_file()
    assert not open_to_others(root) | open_to_others(finished.folder)


def test_a_check_finds_a_client_folder_that_others_can_open(dance, tmp_path):
    check = {"permissions": CHECKS["permissions"]}
    folder = dance.partition / "client-0"
    node = Node("", folder, folder, folder, folder, "")
    assert run_checks(node, check)["permissions"].text.startswith("no other user")
    texts = folder / "nodes.parquet"
    texts.chmod(0o644)
    try:
        text = run_checks(node, check)["permissions"].text
    finally:
        texts.chmod(0o600)
    assert str(texts) in text and "chmod -R go= " in text
    assert stat.S_IMODE(texts.stat().st_mode) == 0o600
