"""Bars: what they say, lines of a log at a bounded rate, estimates, the width of tables."""

import io
import re
import time

import pytest

from dance_flwr import terminal
from dance_flwr.terminal import bar, clear, console, whole


class Screen(io.StringIO):
    """A terminal without a size."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def looks(monkeypatch):
    """A function that replaces stderr, looks often, and returns what stands there."""
    monkeypatch.setattr(terminal, "_REDRAWN", 0.01)
    monkeypatch.setattr(terminal, "_QUIET", 0.1)

    def at(stream):
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return at


def wait_for(stream, pattern, seconds=20):
    deadline = time.monotonic() + seconds
    while not re.search(pattern, stream.getvalue()):
        assert time.monotonic() < deadline, stream.getvalue()[-300:]
        time.sleep(0.01)


def test_an_estimate_is_in_whole_units():
    seconds = (0.2, 40.3, 89, 91, 4.34 * 60, 89 * 60, 100 * 60, 1e7)
    expected = ["1 s", "40 s", "89 s", "2 min", "4 min", "89 min", "2 h", "2,778 h"]
    assert [whole(each) for each in seconds] == expected


@pytest.fixture
def moved(monkeypatch):
    """A function that moves a bar of 10 by (seconds, done) and returns what it says then."""

    def show(*moves, at, done=0):
        now = [100.0]
        monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
        shown = terminal.Bar("rounds", 10, "", done)
        for seconds, number in moves:
            now[0] = 100.0 + seconds
            shown.move(number)
        now[0] = 100.0 + at
        return shown.text()

    return show


def test_no_time_is_estimated_before_two_steps(moved):
    assert moved(at=30) == "0 of 10"
    assert moved((30, 1), at=30) == "1 of 10", "the first contains the start"
    assert moved((30, 1), (32, 2), at=32) == "2 of 10, about 16 s left"
    assert moved((30, 5), (32, 6), at=32, done=4) == "6 of 10, about 8 s left"
    assert moved((30, 9), (32, 10), at=32) == "10 of 10"


def test_a_log_gets_lines_at_a_bounded_rate(looks):
    log, start = looks(io.StringIO()), time.monotonic()
    with bar("rounds", 1000) as shown:
        for done in range(1, 1000):
            shown.move(done, "val accuracy 0.5000")
            time.sleep(0.001)
        wait_for(log, r"(.*\n){2}")
        seconds = time.monotonic() - start
    lines = log.getvalue().splitlines()
    pattern = r"rounds      [\d,]+ of 1,000(, about \d+ s left)?, val accuracy 0.5000, \d+ s so far"
    assert all(re.fullmatch(pattern, line) for line in lines), lines
    assert 2 <= len(lines) <= seconds / 0.1 and "\r" not in log.getvalue()


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
