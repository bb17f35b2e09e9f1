"""Bars: what they say, lines of a log at a bounded rate, estimates, the width of tables."""

import io
import re
import time

import pytest

from dance_flwr import terminal
from dance_flwr.terminal import bar, clear, console


class Screen(io.StringIO):
    """A terminal without a size."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def looks(monkeypatch):
    """A function that replaces stderr, and shows bars there often."""
    monkeypatch.setattr(terminal, "_ON_TERMINAL", (0.0, 0.01))
    monkeypatch.setattr(terminal, "_IN_LOG", (0.1, 0.1))

    def at(stream):
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return at


def test_a_log_gets_lines_at_a_bounded_rate(looks):
    log, start = looks(io.StringIO()), time.monotonic()
    with bar("rounds", 1000) as shown:
        for done in range(1, 1000):
            shown.move(done, "val accuracy 0.5000")
            time.sleep(0.001)
    states = [line for line in log.getvalue().split("\r") if "accuracy" in line]
    pattern = r"rounds +\d+%\|.*\| \d+ of 1000, \d\d:\d\d left, val accuracy 0.5000, \d\d:\d\d"
    assert all(re.search(pattern, state) for state in states), states
    assert 2 <= len(states) <= (time.monotonic() - start) / 0.1


def test_a_terminal_that_is_gone_stops_no_work(looks):
    class Gone(Screen):
        def write(self, text):
            raise OSError(5, "Input/output error")

    looks(Gone())
    with bar("rounds", 3) as shown:
        time.sleep(0.1)
        shown.move(2)
    clear()


def test_a_table_in_a_pipe_is_wide_and_obeys_columns(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == 160
    monkeypatch.setenv("COLUMNS", "90")
    assert console().width == 90
