"""Kill runs, and compare what must be the same afterwards."""

import numpy as np

from dance_flwr.runs.result import load_model

TIMES = (
    "seconds_total",
    "seconds_by_phase",
    "seconds_by_client",
    "seconds_per_round",
    "seconds_personal",
)


ROW_TIMES = ("seconds", "train_seconds", "round_seconds")


class Killed(BaseException):
    """Like the end of a process, no `except Exception` catches it."""


def comparable(finished):
    """A result without seconds and without what differs between runs."""
    result = {k: v for k, v in finished.result.items() if k not in (*TIMES, "run", "resumed_after")}
    result["config"] = {k: v for k, v in result["config"].items() if k != "out"}
    # A second run finds replies of a language model in the client's cache.
    result["tokens"] = {k: v for k, v in result["tokens"].items() if k != "llm"}
    result["history"] = [
        {k: v for k, v in row.items() if k not in ROW_TIMES} for row in result["history"]
    ]
    return result


def states(finished):
    """What clients keep: client -> name -> array."""
    folders = [
        finished.store(client).folder / "state.npz" for client in range(finished.config.clients)
    ]
    return [saved(path) if path.is_file() else {} for path in folders]


def saved(path):
    """The arrays of a client's state by name, numbers among them."""
    with np.load(path) as file:
        return dict(file)


def same(left, right):
    """Assert that two runs gave the same numbers, models and evidence, bit by bit."""
    assert comparable(left) == comparable(right)
    a, b = load_model(left.folder), load_model(right.folder)
    assert a.keys() == b.keys() and all(
        a[name].equal(b[name]) and a[name].dtype == b[name].dtype for name in a
    )
    lines = [
        (finished.folder / "history.jsonl").read_text().splitlines() for finished in (left, right)
    ]
    assert len(lines[0]) == len(lines[1]) == len(right.result["history"])
    for one, other in zip(states(left), states(right), strict=True):
        assert one.keys() == other.keys() and all(
            np.array_equal(one[name], other[name]) for name in one
        )
    for client in range(left.config.clients):
        packs = [finished.store(client).all_packs() for finished in (left, right)]
        assert [path.name for path in packs[0]] == [path.name for path in packs[1]]
        for one, other in zip(*packs, strict=True):
            with np.load(one) as a, np.load(other) as b:
                assert a.files == b.files and all(
                    np.array_equal(a[name], b[name]) for name in a.files
                )


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
        if (
            message.metadata.src_node_id
            or not message.has_content()
            or message.metadata.message_type != kind
        ):
            return False
        return message.content.config_records.get("config", {}).get("server-round") == round_

    return Kill(matches, number)
