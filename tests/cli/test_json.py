"""`--json`: one object of JSON proper, for programs."""

import json
import shutil

import pytest


def strict(text):
    """The object in a text, which must not hold NaN or Infinity."""
    found = json.loads(text, parse_constant=pytest.fail)
    assert isinstance(found, dict)
    return found


def test_a_command_prints_one_object(cli, dance, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(dance.folder, tmp_path / "runs" / "mine")
    found = [
        strict(cli(*words, "--json").out)
        for words in (["status", dance.folder], ["report", dance.folder], ["list", "runs"])
    ]
    accuracy = dance.result["test_accuracy"]
    assert [found[0]["test_accuracy"], found[1]["test_accuracy"]] == [accuracy] * 2
    assert strict(cli("data", "show", tiny, "--json").out)["counts"]["nodes"] == 72 and found[2]


def test_a_number_that_json_does_not_know_is_null(cli, tmp_path):
    (tmp_path / "nodes.csv").write_text("id,text,label\na,one,\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    facts = strict(cli("data", "show", tmp_path, "--json").out)
    assert facts["homophily"] is None and facts["counts"]["nodes"] == 1


def test_methods_are_listed_with_the_same_words(cli):
    facts, text = strict(cli("list", "methods", "--json").out), cli("list", "methods").out
    assert [line.split()[0] for line in text.splitlines()] == [*facts]
    for row, line in zip(facts.values(), text.splitlines(), strict=True):
        assert all(value in line for value in row.values())
