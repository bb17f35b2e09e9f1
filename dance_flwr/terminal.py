"""Show the progress of work on a terminal and in a log; durations, sizes, tables.

A terminal gets a bar that moves, also while nothing ends; a log or a notebook gets a line now and
then. Both go to stderr: stdout is for results.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from dance_flwr.errors import counted
from dance_flwr.escaping import one_line
from dance_flwr.events import structured

if TYPE_CHECKING:  # `dance-flwr --help` needs neither
    from rich.console import Console

_REDRAWN = 0.2  # seconds between two looks of a bar on a terminal
_QUIET, _RARE, _SHARE = 5.0, 60.0, 0.1  # seconds between lines of a log: a tenth of those so far
_PIPE = 160  # columns of tables that no terminal shows


class Bar:
    """How far one piece of work has come.

    Parameters
    ----------
    what : name of the work, of up to 11 characters
    total : how much there is to do; None = not known
    unit : of `total` and `done`; "" where `what` says it
    done : what was done before
    """

    def __init__(self, what: str, total: int | None, unit: str, done: int) -> None:
        self.what, self.total, self.unit = one_line(what), total, unit
        self.done, self.note, self.start = done, "", time.monotonic()
        # (seconds, done) at the first move and the last: what lies before the first is the start.
        self._first = self._last = (0.0, done)
        self._next = _QUIET

    def move(self, done: int, note: str = "") -> None:
        """Set how much is done, and what else there is to say."""
        self.done, self.note = done, note
        self._last = (time.monotonic() - self.start, done)
        self._first = self._last if self._first[0] == 0 else self._first

    def seconds_left(self) -> float | None:
        """Return the seconds to the end by the pace since the first move; None if not known."""
        moved = self._last[1] - self._first[1]
        if self.total is None or moved <= 0 or self.done >= self.total:
            return None
        pace = (self._last[0] - self._first[0]) / moved
        since = time.monotonic() - self.start - self._last[0]
        # A step that takes longer than the others says nothing of those after it.
        rest = self.total - self.done
        return max(pace * rest - since, pace * (rest - 1))

    def text(self) -> str:
        """Return how far it is: count, time left, note."""
        count = f"{self.done:,}" + ("" if self.total is None else f" of {self.total:,}")
        parts = [f"{count} {self.unit}".rstrip()] if self.total or self.done else []
        left = self.seconds_left()
        parts += [f"about {whole(left)} left"] if left else []
        return ", ".join([*parts, *([self.note] if self.note else [])])

    def _draw(self, stream: TextIO) -> None:
        from tqdm import tqdm

        seconds = time.monotonic() - self.start
        text = self.text().replace("{", "{{").replace("}", "}}")
        drawn = "{percentage:3.0f}%|{bar}| " if self.total else ""
        shape = f"{self.what:12s}{drawn}{text}{', ' if text else ''}{{elapsed}}"
        # Blanks after what has no end: a bar fills its line, and a line that does is cut to fit.
        shape += "" if self.total else "{bar}"
        is_plain = not (stream.encoding or "").lower().startswith("utf")
        facts = {"ascii": is_plain, "bar_format": shape, "ncols": _columns(stream) - 1}
        stream.write("\r" + tqdm.format_meter(self.done, self.total, seconds, **facts))
        stream.flush()

    def _log(self, stream: TextIO) -> None:
        seconds = time.monotonic() - self.start
        if seconds >= self._next:
            self._next = seconds + min(max(_QUIET, _SHARE * seconds), _RARE)
            text = self.text()
            stream.write(f"{self.what:12s}{text}{', ' if text else ''}{whole(seconds)} so far\n")
            stream.flush()


_OPEN: list[Bar] = []  # the innermost, which is shown, comes last
_LOCK = threading.RLock()  # held while a bar is drawn or erased
_drawn = False  # whether a bar stands on the terminal


@contextmanager
def bar(
    what: str, total: int | None = None, unit: str = "", done: int = 0, *, visible: bool = True
) -> Iterator[Bar]:
    """Show how far the work of this block is; of nested bars, the innermost is shown.

    Nothing is shown for a block that ends at once, or if events are printed as JSON lines.

    Parameters
    ----------
    what, total, unit, done : of `Bar`
    visible : False shows nothing
    """
    shown = Bar(what, total, unit, done)
    if not visible or structured():
        yield shown
    else:
        over = threading.Event()
        if not _OPEN:
            threading.Thread(target=_watch, args=(over,), daemon=True).start()
        _OPEN.append(shown)
        try:
            yield shown
        finally:
            _OPEN.remove(shown)
            over.set()
            if not _OPEN:
                clear()


@contextmanager
def round_bar(
    rounds: int, visible: bool, done: int = 0
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that moves a progress bar to the round of a row."""
    with bar("rounds", rounds, done=done, visible=visible) as shown:

        def update(row: Mapping[str, Any]) -> None:
            score = row["val_accuracy"]
            shown.move(row["round"], "" if score is None else f"val accuracy {score:.4f}")

        yield update


def _watch(over: threading.Event) -> None:
    # On a thread: a round may take an hour, and what has not moved is still at work.
    while not over.wait(_REDRAWN):
        # A terminal may be gone.
        with suppress(OSError, ValueError, IndexError):
            _show(sys.stderr)


def _show(stream: TextIO) -> None:
    global _drawn
    with _LOCK:
        if stream.isatty():
            _OPEN[-1]._draw(stream)
            _drawn = True
        else:
            _OPEN[-1]._log(stream)


def clear() -> None:
    """Erase the bar from the terminal before something else is printed; it is drawn again soon."""
    global _drawn
    with _LOCK:
        if _drawn:
            _drawn = False
            with suppress(OSError, ValueError):
                sys.stderr.write("\r" + " " * (_columns(sys.stderr) - 1) + "\r")
                sys.stderr.flush()


def whole(seconds: float) -> str:
    """Return an estimate of seconds in whole seconds, minutes or hours."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{round(seconds / length):,} {unit}"
    return f"{max(1, round(seconds))} s"


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, rounded."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def pace(seconds: float, rounds: int) -> str:
    """Return the time of all rounds and the mean of one, without the start of the run."""
    return f"{duration(seconds)} in {counted(rounds, 'round')}, {duration(seconds / rounds)} each"


def size(count: float) -> str:
    """Return a number of bytes in B, kB, MB or GB, rounded."""
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= length:
            return f"{count / length:.3g} {unit}"
    return f"{count:.0f} B"


def console() -> "Console":
    """Return Rich's console of stdout, as wide as its terminal or $COLUMNS, else as tables need."""
    from rich.console import Console

    # Rich takes 80 columns for a pipe, which folds the cells of most tables.
    return Console(width=None if "COLUMNS" in os.environ else _columns(sys.stdout, _PIPE))


def wrapped(text: str, indent: str = "") -> str:
    """Return a sentence in lines no wider than the terminal, all but the first indented."""
    from textwrap import fill

    width = console().width
    return fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


def _columns(stream: TextIO, otherwise: int = 80) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return otherwise
