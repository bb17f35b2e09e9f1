"""The ledger says who answered and who counted, over sessions and files of earlier versions."""

import json
from dataclasses import asdict

import pytest

from dance_flwr.llm.ledger import Ledger


def test_names_are_kept_over_sessions_and_joined_once(tmp_path):
    path = tmp_path / "llm.json"
    for model, counter in (("m 1", "words"), ("m 2", "words"), ("m 1", "words")):
        ledger = Ledger.load(path)
        ledger.name(model, counter)
        ledger.fresh_calls += 1
        ledger.save(path)
    found = Ledger.load(path)
    assert (found.model, found.counted_by, found.fresh_calls) == ("m 1 + m 2", "words", 3)


def test_a_ledger_without_names_is_read(tmp_path):
    path = tmp_path / "llm.json"
    counts = {name: 2 for name in asdict(Ledger()) if name not in ("model", "counted_by")}
    path.write_text(json.dumps(counts))
    found = Ledger.load(path)
    assert (found.fresh_prompt, found.milliseconds, found.model) == (2, 2, "")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"fresh_calls": "x"}', "7"])
def test_a_damaged_ledger_is_empty(tmp_path, content):
    (tmp_path / "llm.json").write_text(content)
    assert Ledger.load(tmp_path / "llm.json") == Ledger()
