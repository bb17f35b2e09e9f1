"""Kill runs, and compare what must be the same afterwards."""

import numpy as np

from dance_flwr.federation.secagg.sums import kind_of
from dance_flwr.runs.result import load_model
from support.models import equal

TIMES = {f"seconds_{what}" for what in ("total", "by_phase", "by_client", "per_round", "personal")}
ROW_TIMES = {"seconds", "train_seconds", "round_seconds"}


class Killed(BaseException):
    """Like the end of a process, no `except Exception` catches it."""


def comparable(finished):
    """A result without seconds and without what differs between runs."""

    def without(values, names):
        return {key: value for key, value in values.items() if key not in names}

    result = without(finished.result, {*TIMES, "run", "resumed_after"})
    result["config"] = without(result["config"], {"out"})
    # A second run finds replies of a language model in the client's cache.
    result["tokens"] = without(result["tokens"], {"llm"})
    result["history"] = [without(row, ROW_TIMES) for row in result["history"]]
    return result


def states(finished):
    """What clients keep: client -> name -> array."""
    stores = (finished.store(client).folder for client in range(finished.config.clients))
    return [saved(path) if (path := folder / "state.npz").is_file() else {} for folder in stores]


def saved(path):
    """The arrays of an .npz by name, such as a client's state, numbers among them."""
    with np.load(path) as file:
        return dict(file)


def same_arrays(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def same(left, right):
    """Assert that two runs gave the same numbers, models and evidence, bit by bit."""
    assert comparable(left) == comparable(right)
    assert equal(load_model(left.folder), load_model(right.folder))
    for finished in (left, right):
        lines = (finished.folder / "history.jsonl").read_text().splitlines()
        assert len(lines) == len(right.result["history"])
    for one, other in zip(states(left), states(right), strict=True):
        same_arrays(one, other)
    for client in range(left.config.clients):
        packs = [finished.store(client).all_packs() for finished in (left, right)]
        assert [path.name for path in packs[0]] == [path.name for path in packs[1]]
        for one, other in zip(*packs, strict=True):
            same_arrays(saved(one), saved(other))


class Kill:
    """End a run at the n-th message or call that `matches` accepts."""

    def __init__(self, matches, number=1):
        self.matches, self.left = matches, number

    def __call__(self, *arguments, **_):
        if self.matches(*arguments):
            self.left -= 1
            if not self.left:
                raise Killed


def asks(kind, round_, number=1):
    """Kill at the n-th message of this kind in this round; earlier clients have answered."""

    def matches(message):
        if message.metadata.src_node_id or kind_of(message)[0] != kind:
            return False
        return message.content.config_records.get("config", {}).get("server-round") == round_

    return Kill(matches, number)
