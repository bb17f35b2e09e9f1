"""Show the progress of work on a terminal and in a log; durations, sizes, tables.

Bars go to stderr: stdout is for results.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from dance_flwr.errors import counted
from dance_flwr.escaping import one_line
from dance_flwr.events import structured

if TYPE_CHECKING:  # `dance-flwr --help` needs neither
    from rich.console import Console

# Seconds before a bar appears, and between its states: on a terminal, and in a log.
_ON_TERMINAL, _IN_LOG = (0.0, 0.2), (5.0, 30.0)
_PIPE = 160  # columns of tables that no terminal shows


class Bar(tqdm):  # type: ignore[misc]  # which has no types
    """How far one piece of work has come, in one line; of nested bars, the last that moved."""

    monitor_interval = 0  # no thread: a bar moves with its work

    def move(self, done: int, note: str = "") -> None:
        """Set how much is done, and what else there is to say."""
        self.set_postfix_str(note, refresh=False)
        self.update(done - self.n)


Bar.set_lock(RLock())  # the default one is for several processes


@contextmanager
def bar(
    what: str, total: int | None = None, unit: str = "", done: int = 0, *, visible: bool = True
) -> Iterator[Bar]:
    """Show how far the work of this block is.

    Nothing is shown for a block that ends at once, or if events are printed as JSON lines.

    Parameters
    ----------
    what : name of the work, of up to 11 characters
    total : how much there is to do; None = not known
    unit : of `total` and `done`; "" where `what` says it
    done : what was done before
    visible : False shows nothing
    """
    delay, interval = _ON_TERMINAL if sys.stderr.isatty() else _IN_LOG
    count = f"{{n_fmt}} of {{total_fmt}} {unit}".rstrip()
    shape = f"{{percentage:3.0f}}%|{{bar}}| {count}, {{remaining}} left{{postfix}}, "
    options = {"delay": delay, "mininterval": interval, "miniters": 1, "position": 0}
    options |= {"leave": False, "dynamic_ncols": True, "disable": not visible or structured()}
    form = f"{{desc}}{shape if total else ''}{{elapsed}}{'' if total else '{bar}'}"
    name = f"{one_line(what):12s}"
    with Bar(desc=name, total=total, initial=done, bar_format=form, **options) as shown:
        yield shown


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


def clear() -> None:
    """Erase the bar from the terminal before something else is printed; it is drawn again soon."""
    for shown in list(getattr(Bar, "_instances", ())):
        shown.clear()


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

    width = _PIPE  # Rich takes 80 columns for a pipe, which folds the cells of most tables
    with suppress(OSError, ValueError, AttributeError):
        width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
    return Console(width=None if "COLUMNS" in os.environ else width)


def wrapped(text: str, indent: str = "", widest: int = _PIPE) -> str:
    """Return a sentence in lines no wider than the terminal; all but the first are indented."""
    from textwrap import fill

    return fill(
        text, min(console().width, widest), subsequent_indent=indent, break_on_hyphens=False
    )
