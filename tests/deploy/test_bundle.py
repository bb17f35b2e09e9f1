"""What is submitted to Flower declares every key, those of plug-ins too."""

import tomllib

import pytest
from support.project import PROJECT

from dance_flwr.config.plugins import METHODS
from dance_flwr.deploy import bundle
from dance_flwr.errors import UserError


@pytest.fixture
def toy(monkeypatch):
    """A method of another package."""
    monkeypatch.setitem(
        vars(METHODS), "_external", {"toy-method": "support.outside.toy_method:METHOD"}
    )


def declared(folder):
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def test_the_copy_holds_the_app_and_nothing_else(tmp_path):
    copy = bundle.submitted_app(tmp_path)
    assert declared(copy) == declared(PROJECT)
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert {"server_app.py", "client_app.py", "dance_flwr/config/tree.py"} <= files
    for name in files - {"pyproject.toml"}:
        assert (copy / name).read_bytes() == (PROJECT / name).read_bytes()
    assert {name.split("/")[0] for name in files} == {
        *("pyproject.toml", "server_app.py", "client_app.py", "README.md", "LICENSE"),
        *("dance_flwr", "partitions"),
    }


def test_a_copy_declares_the_keys_of_plug_ins(tmp_path, toy):
    copy = bundle.submitted_app(tmp_path, "toy-method")
    before, after = declared(PROJECT), declared(copy)
    assert after["tool"]["flwr"]["app"]["config"].pop("toy") == {"shrink": 0.5, "rounds-off": 0}
    assert after == before
    for name in ("server_app.py", "dance_flwr/config/tree.py", "README.md"):
        assert (copy / name).read_bytes() == (PROJECT / name).read_bytes()
    assert not (copy / "tests").exists()


def test_a_package_without_its_app_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "PROJECT", tmp_path)
    with pytest.raises(UserError, match="install dance-flwr again"):
        bundle.app_dir()
