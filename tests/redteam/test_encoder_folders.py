"""Encoder folders of strangers: their code never runs, and nothing outside of them is read."""

import json

import pytest
from support.small_encoder import write_small_encoder

from dance_flwr.data.text.encoder import TextEncoder, resolve_encoder
from dance_flwr.errors import DataError, UserError

CODE = """\
from pathlib import Path
Path({mark!r}).write_text("executed")
from sentence_transformers.models import Normalize as Custom
from transformers import BertTokenizerFast as CustomTokenizer
"""


@pytest.fixture
def folder(tmp_path):
    """An encoder whose folder has code that leaves a mark where it is executed."""
    folder = tmp_path / "encoder"
    write_small_encoder(folder)
    (folder / "hostile.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    yield folder
    assert not (tmp_path / "mark").exists()


def change_module(folder, **values):
    """Change the last entry of modules.json."""
    path = folder / "modules.json"
    entries = json.loads(path.read_text())
    entries[-1] |= values
    path.write_text(json.dumps(entries))


@pytest.mark.parametrize(
    "kind",
    [
        "hostile.Custom",
        "antigravity.Custom",
        "sentence_transformers_extra.Custom",
        "sentence_transformers.util.misc.importlib",
        "sentence_transformers.base.model.pickle",
        "",
        7,
        None,
    ],
)
def test_a_module_of_another_package_is_refused_before_it_is_imported(folder, kind):
    change_module(folder, type=kind)
    with pytest.raises(DataError, match=r"expected modules of sentence_transformers .*; use"):
        TextEncoder.from_spec(resolve_encoder(str(folder), "float32"))


@pytest.mark.parametrize("path", ["/etc", "..", "1_Pooling/../../..", 7, None])
def test_a_module_outside_of_the_folder_is_not_read(folder, path):
    change_module(folder, path=path)
    with pytest.raises(DataError, match=r"modules\.json: expected .*path.*; use another"):
        resolve_encoder(str(folder), "float32")


@pytest.mark.parametrize("content", ["{}", "[7]", "7", '["type"]', '[{"path": ""}]'])
def test_a_list_of_modules_that_is_none_is_an_error_in_one_line(folder, content):
    (folder / "modules.json").write_text(content)
    with pytest.raises(DataError, match=r"modules\.json: expected"):
        resolve_encoder(str(folder), "float32")


def test_code_that_the_settings_of_a_model_name_is_not_executed(folder):
    for name, code in {
        "config.json": {"AutoConfig": "hostile.Custom", "AutoModel": "hostile.Custom"},
        "tokenizer_config.json": {"AutoTokenizer": ["hostile.CustomTokenizer"] * 2},
    }.items():
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | {"auto_map": code}))
    # Known to the library, so that it uses its own classes.
    encoder = TextEncoder.from_spec(resolve_encoder(str(folder), "float32"))
    assert encoder.encode(["a text"]).shape[0] == 1


def test_an_architecture_of_code_in_the_folder_is_refused(folder):
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "hostile", "auto_map": {"AutoConfig": "hostile.Custom"}}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"expected a model that this program can load.*; use"):
        TextEncoder.from_spec(resolve_encoder(str(folder), "float32"))
