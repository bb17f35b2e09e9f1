"""`--json`: one object with the facts that the text shows, for programs."""

import json
import math
import re
import shutil

import pytest

# Flags of each command that prints an object; RUN and GRAPH stand for what a test has.
COMMANDS = {
    "status": ["RUN"],
    "report": ["RUN"],
    "data show": ["GRAPH"],
    "list": ["runs"],
}


def strict(text):
    """The object in a text, which must not hold NaN or Infinity."""
    found = json.loads(text, parse_constant=pytest.fail)
    assert isinstance(found, dict)
    return found


def numbers(value):
    """Every number in an object."""
    if isinstance(value, dict):
        return {n for each in value.values() for n in numbers(each)}
    if isinstance(value, list):
        return {len(value), *(n for each in value for n in numbers(each))}
    return {value} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def shown(number):
    """The ways in which a text shows a number."""
    ways = {f"{number:{form}}" for form in (",.3f", ",.4f", ",.1f", ",.0f", "+.2f", ".1f", ".0f")}
    ways |= {f"{100 * number:.1f}", f"{number:.2g}", f"{number:.3g}", f"{abs(number):.2f}"}
    return ways | {f"{number / size:.3g}" for size in (1000, 10**6)} | {f"{number:,}"}


@pytest.fixture
def called(cli, dance, tiny, tmp_path, monkeypatch):
    """A function that calls one of the commands with more flags."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(dance.folder, tmp_path / "runs" / "mine")
    places = {"RUN": dance.folder, "GRAPH": tiny}

    def call(command, *more):
        words = [places.get(word, word) for word in COMMANDS[command]]
        done = cli(*command.split(), *words, *more)
        assert done.code == 0, done.err
        return done.out

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_of_the_text_are_those_of_the_object(called, command):
    facts, text = strict(called(command, "--json")), called(command)
    # Texts of nodes and names hold numbers of their own, and so do marks and bins.
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    words = {
        n for name in re.findall(r'"[^"]*"', json.dumps(facts)) for n in re.findall(r"\d+", name)
    }
    known = {way for number in numbers(facts) for way in shown(number)}
    found = re.findall(r"(?<![\w.-])[-+]?\d[\d,]*(?:\.\d+)?(?![\w.-])", plain)
    printed = {number.rstrip(",") for number in found}
    assert len(printed) > 1
    assert not [n for n in printed if n not in known and n.lstrip("+-") not in words]


def test_a_number_that_json_does_not_know_is_null(cli, tmp_path):
    (tmp_path / "nodes.csv").write_text("id,text,label\na,one,\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    facts = strict(cli("data", "show", tmp_path, "--json").out)
    assert facts["homophily"] is None and facts["counts"]["nodes"] == 1
    assert all(math.isfinite(n) for n in numbers(facts))


def test_methods_are_listed_with_the_same_words(cli):
    facts, text = strict(cli("list", "methods", "--json").out), cli("list", "methods").out
    assert [line.split()[0] for line in text.splitlines()] == [*facts]
    for row, line in zip(facts.values(), text.splitlines(), strict=True):
        assert all(value in line for value in row.values())
