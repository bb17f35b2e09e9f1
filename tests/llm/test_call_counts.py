"""The counts on disk: added to by several processes, damaged, older."""

import subprocess
import sys
from dataclasses import fields

import pytest
from support.project import PROJECT
from support.prompts import GOOD, Told, prompt, session

from dance_flwr.llm.session import LEDGER, CallCounts

ASK = """
import sys
from pathlib import Path
from support.prompts import GOOD, Told, prompt, session
with session(Told(GOOD), Path(sys.argv[1]), max_calls=50) as asking:
    for number in range(20):
        asking.ask(prompt(sys.argv[2], str(number)))
        asking.ask(prompt(sys.argv[2], str(number)))
"""


def test_processes_of_one_client_lose_no_count_and_share_the_cap(tmp_path):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(tmp_path), name],
            cwd=PROJECT,
            env={"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        )
        for name in ("a", "b", "c")
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    counts = CallCounts.load(tmp_path / "runs" / "r" / LEDGER)
    assert (counts.fresh_calls, counts.capped_calls + counts.cached_calls) == (50, 70)
    assert counts.fresh_prompt == 50 * Told(GOOD).count(prompt("a", "1").text)


def test_sessions_inside_each_other_share_one_cap(tmp_path):
    with session(Told(GOOD), tmp_path, max_calls=2) as outer:
        assert outer.ask(prompt("one"))
        with session(Told(GOOD), tmp_path, max_calls=2) as inner:
            assert inner.ask(prompt("two"))
        assert outer.ask(prompt("three")) is None
    counts = CallCounts.load(tmp_path / "runs" / "r" / LEDGER)
    assert (counts.fresh_calls, counts.capped_calls) == (2, 1)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "null", "[1]", '{"fresh_calls": -1}', '{"fresh_calls": "3"}'),
        *('{"fresh_calls": true}', '{"fresh_calls": 1.5}', "[" * 100_000, "7"),
    ],
)
def test_a_damaged_ledger_is_empty(tmp_path, content):
    (tmp_path / "llm.json").write_text(content, encoding="utf-8")
    assert CallCounts.load(tmp_path / "llm.json") == CallCounts()


def test_counts_are_added_and_come_back(tmp_path):
    counts = [item.name for item in fields(CallCounts) if item.name not in ("model", "counted_by")]
    one = CallCounts(**{name: number for number, name in enumerate(counts, 1)})
    assert CallCounts() + one == one
    assert one.fresh_tokens == one.fresh_prompt + one.fresh_completion
    twice = one + one + CallCounts(model="m 1", counted_by="words")
    twice += CallCounts(model="m 2", counted_by="words") + CallCounts(model="m 1")
    assert all(getattr(twice, name) == 2 * getattr(one, name) for name in counts)
    assert (twice.model, twice.counted_by) == ("m 1 + m 2", "words")
    twice.save(tmp_path / "l.json")
    assert CallCounts.load(tmp_path / "l.json") == twice
