"""`--dry-run`: calls and tokens are printed by client and in all before any is spent."""

import re
from dataclasses import replace

import pytest
from support.counted_method import QUESTIONS, SPEC, Asking, register
from support.graphs import SMALL

from dance_flwr.config.tree import parse
from dance_flwr.data.prepare import partition_folder, prepare
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.runs.plan import asks, planned_calls

KEYS = {**SMALL, "clients": 3}


@pytest.fixture(autouse=True)
def asking(monkeypatch):
    register(monkeypatch, "toy-asking")


@pytest.fixture
def words(tiny):
    """The options of the command line for the tiny graph."""
    return ["--data", str(tiny), *(f"--set={key}={value}" for key, value in KEYS.items())]


def numbers(line):
    return [int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*", line)]


def nothing_was_asked(config):
    folder = partition_folder(config)
    assert not list(folder.glob("client-*/llm")) and not list(folder.glob("client-*/runs/*/llm*"))


def test_a_run_says_what_it_would_ask_and_asks_nothing(cli, words, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("run", "--dry-run", "--set=method=toy-asking", "--set=seed=95", *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("plan        toy-asking on ") and "3 clients" in lines[0]
    rows = [numbers(line) for line in lines if line.startswith("client ")]
    config = parse({"data": str(tiny), **KEYS, "method": "toy-asking", "seed": 95})
    plan = planned_calls(config, partition_folder(config))
    assert [row[0] for row in rows] == [0, 1, 2] and sum(row[1] for row in rows) == 72
    assert [row[1:] for row in rows] == [[own.nodes, QUESTIONS, 60] for own in plan]
    (total,) = [line for line in lines if line.startswith("model calls")]
    assert numbers(total) == [3 * QUESTIONS, 180]
    assert lines[-1] == "dry run     nothing was run" and list(tmp_path.iterdir()) == []
    nothing_was_asked(config)


def test_a_run_that_asks_nothing_says_so_and_prepares_nothing(cli, words, tiny):
    done = cli("run", "--dry-run", "--set=method=fedavg-full", "--set=seed=96", *words)
    assert done.code == 0 and "model calls none" in done.out and "(to be made)" in done.out
    config = parse({"data": str(tiny), **KEYS, "method": "fedavg-full", "seed": 96})
    assert not partition_folder(config).exists()


def plan_of(tiny, **keys):
    """The calls of a run on the tiny graph; keys have "." and "-" as on the command line."""
    config = parse({"data": str(tiny), **KEYS, **keys})
    return config, planned_calls(config, prepare(config).folder)


def test_calls_stay_within_the_caps_of_the_run(tiny, monkeypatch):
    _, free = plan_of(tiny, method="toy-asking")
    _, capped = plan_of(tiny, method="toy-asking", **{"llm.max-calls": 2, "llm.max-tokens": 45})
    assert [(own.calls, own.tokens, own.capped) for own in free] == [(3, 60, False)] * 3
    assert [(own.calls, own.tokens, own.capped) for own in capped] == [(2, 45, True)] * 3
    # A method that does not say how often it asks is bounded by the caps alone.
    silent = type("Silent", (FedAvgFull,), {"train": Asking.train})
    register(monkeypatch, "toy-asking", replace(SPEC, client=silent))
    _, bound = plan_of(tiny, method="toy-asking", **{"llm.max-calls": 7})
    assert [(own.calls, own.tokens, own.capped) for own in bound] == [(7, 500_000, False)] * 3


def test_summaries_are_planned_once_per_core_node(tiny):
    config, calls = plan_of(tiny, **{"llm.summaries": "core"})
    assert config.method == "dance" and asks(config)
    assert not asks(parse({"data": str(tiny), **KEYS}))
    for own in calls:
        assert own.calls == -(-own.nodes * config.condensation_ratio // 1) > 0
        assert own.tokens > 100 * own.calls
