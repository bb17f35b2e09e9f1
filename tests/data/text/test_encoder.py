import shutil
import subprocess
import sys

import numpy as np
import pytest

from dance_flwr.data.text import encoder as module
from dance_flwr.data.text.encoder import (
    DEFAULT_ENCODER,
    DEFAULT_SHA256,
    TextEncoder,
    resolve_encoder,
)
from dance_flwr.errors import DataError

SENTENCES = [
    "Graph neural networks propagate features along edges.",
    "Cats sleep most of the day.",
    "Message passing on graphs spreads node attributes to neighbours.",
    "",
    "word " * 100,
]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder.from_spec(resolve_encoder(DEFAULT_ENCODER, "float32"))


@pytest.fixture
def copy(tmp_path):
    """A copy of the default model's small files, with stand-in weights."""
    source, target = resolve_encoder(DEFAULT_ENCODER, "float32").folder, tmp_path / "model"
    shutil.copytree(
        source,
        target,
        ignore=shutil.ignore_patterns("*.safetensors", "vocab.txt", "data_config.json"),
    )
    (target / "model.safetensors").write_bytes(b"weights")
    return target


def test_rows_are_unit_length_in_input_order(encoder):
    rows = encoder.encode(SENTENCES)
    assert rows.shape == (5, encoder.spec.dim) == (5, 384) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[2] > rows[0] @ rows[1] + 0.2
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1])[::-1], rows, atol=1e-5)
    assert encoder.encode([]).shape == (0, 384)
    assert np.isfinite(encoder.encode(["lone \ud800 surrogate"])).all()


@pytest.mark.parametrize("prompt", [None, "query: "])
def test_tokens_are_those_of_the_library(encoder, prompt):
    """Padded, cut at the model's limit, one alone; with a prompt the library is asked."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = encoder._model
    for texts in (SENTENCES, SENTENCES[1:2], ["word " * 900, "Umlaute: äöü"], [""]):
        own = model.preprocess(texts, prompt=prompt)
        library = SentenceTransformer.preprocess(model, texts, prompt=prompt)
        assert own.keys() == library.keys()
        for name, value in library.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(own[name], value), name
            else:
                assert own[name] == value


def test_mean_pooling_matches_the_transformer_itself(encoder):
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(str(encoder.spec.folder)).eval()
    inputs = encoder.tokenizer([SENTENCES[0]], return_tensors="pt")
    with torch.inference_mode():
        mean = model(**inputs).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(
        encoder.encode(SENTENCES[:1])[0], mean / np.linalg.norm(mean), atol=1e-5
    )


def test_fingerprint_loads_no_model_and_reads_weights_once():
    code = (
        "import sys; from dance_flwr.data.text import encoder as e;"
        "assert 'torch' not in sys.modules;"
        "first = e.resolve_encoder(e.DEFAULT_ENCODER, 'float32');"
        "e.file_sha256 = None;"
        "assert first == e.resolve_encoder(e.DEFAULT_ENCODER, 'float32');"
        "assert not {'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_hash_is_refused(copy, monkeypatch):
    with pytest.raises(
        DataError, match=f"expected weights with sha256 {'0' * 64}, found {DEFAULT_SHA256}; "
    ) as error:
        resolve_encoder(DEFAULT_ENCODER, "float32", "0" * 64)
    assert "\n" not in str(error.value)
    good = resolve_encoder(str(copy), "float32").weights_sha256
    assert resolve_encoder(str(copy), "float32", good.upper()).weights_sha256 == good
    # The default name is checked even when nobody asks for it.
    monkeypatch.setattr(module, "find_folder", lambda name: copy)
    with pytest.raises(DataError, match=f"expected weights with sha256 {DEFAULT_SHA256}"):
        resolve_encoder(DEFAULT_ENCODER, "float32")


@pytest.mark.parametrize(
    "file", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json", "modules.json"]
)
def test_fingerprint_covers_every_file_that_matters(copy, file):
    before = resolve_encoder(str(copy), "float32").fingerprint
    with (copy / file).open("ab") as handle:
        handle.write(b" ")
    read = [resolve_encoder(str(copy), each).fingerprint for each in ("float32", "bfloat16")]
    assert read[0] != before != read[1]


def test_fingerprint_ignores_place_and_readme(copy, tmp_path):
    before = resolve_encoder(str(copy), "float32").fingerprint
    (copy / "README.md").write_text("other")
    moved = copy.rename(tmp_path / "moved")
    assert resolve_encoder(str(moved), "float32").fingerprint == before


def test_unusable_names_and_folders_are_refused(copy, monkeypatch):
    with pytest.raises(DataError, match="no-such-folder/at/all"):
        resolve_encoder("no-such-folder/at/all", "float32")
    (copy / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        resolve_encoder(str(copy), "float32")
    (copy / "tokenizer.json").write_text("{}")
    (copy / "config.json").write_text("{")
    with pytest.raises(DataError, match="expected JSON"):
        resolve_encoder(str(copy), "float32")


def test_unreachable_hub_is_one_line(monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    with pytest.raises(DataError, match="found ConnectionError; go online") as error:
        resolve_encoder("sentence-transformers/all-MiniLM-L6-v2")
    assert "\n" not in str(error.value)
