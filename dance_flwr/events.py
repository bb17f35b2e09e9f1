"""What happens in a run, as one JSON line per event on stderr where $DANCE_FLWR_LOG is `json`;
silent otherwise.

Flower's own lines and every `LOG` of the app come in the same form there, as event `log`. What a
ServerApp prints is seen by `flwr log` and nowhere else, so a server keeps its lines in
`events.jsonl` of the run's folder too. A formatter of the standard library does: a package would
leave the names of run, round and client, and NaN, to us as well.
"""

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

VARIABLE, FILE = "DANCE_FLWR_LOG", "events.jsonl"
_EVENTS = logging.getLogger("dance_flwr.events")
_EVENTS.addHandler(logging.NullHandler())
_EVENTS.propagate = False
_BOUND: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=MappingProxyType({}))


def structured() -> bool:
    """Whether the user asked for JSON lines."""
    return os.environ.get(VARIABLE, "").strip().lower() == "json"


def install() -> None:
    """Make every log line of this process one JSON line on stderr, where the user asked for it."""
    flower = logging.getLogger("flwr")
    if not structured() or any(isinstance(handler, _Lines) for handler in flower.handlers):
        return
    lines = _Lines()
    for handler in list(flower.handlers):
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            lines.setLevel(handler.level)  # of FLWR_LOG_LEVEL
            flower.removeHandler(handler)
    flower.addHandler(lines)
    _EVENTS.addHandler(_Lines())
    _EVENTS.setLevel(logging.INFO)


def emit(event: str, message: str, level: int = logging.INFO, **facts: Any) -> None:
    """Tell of an event; facts whose value is None are left out, and run, round and client are those
    of `bound`.
    """
    _EVENTS.log(level, "%s", message, extra={"event": event, "facts": facts})


def bind(**facts: Any) -> None:
    """Write these facts into every line from here on, up to the end of the `bound` around it."""
    _BOUND.set({**_BOUND.get(), **facts})


def bound_fact(name: str) -> Any:
    """Return a fact that is written into every line at this point; None where it is not."""
    return _BOUND.get().get(name)


@contextmanager
def bound(**facts: Any) -> Iterator[None]:
    """Write these facts into every line of the block."""
    token = _BOUND.set({**_BOUND.get(), **facts})
    try:
        yield
    finally:
        _BOUND.reset(token)


@contextmanager
def kept(folder: Path, goes_on: bool) -> Iterator[None]:
    """Keep the lines of the block in `events.jsonl` too, where the user asked for lines.

    Parameters
    ----------
    goes_on : whether they are added to those of the run before it stopped
    """
    if not structured():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(folder / FILE, "a" if goes_on else "w", encoding="utf-8")
    file.setLevel(logging.INFO)
    file.setFormatter(_Format())
    loggers = (logging.getLogger("flwr"), _EVENTS)
    for logger in loggers:
        logger.addHandler(file)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(file)
        file.close()


class _Lines(logging.Handler):
    """Writes to what is stderr at that moment: Flower exchanges it to pass on what a process
    prints.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(line_of(record) + "\n")  # in one piece, as other threads write too
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return line_of(record)


def line_of(record: logging.LogRecord) -> str:
    """Return a log record as one line of JSON."""
    facts = {**_BOUND.get(), **getattr(record, "facts", {})}
    message = record.getMessage().strip()
    if record.exc_info and record.exc_info[1]:
        facts["traceback"] = logging.Formatter().formatException(record.exc_info)
    values = {
        "time": datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": getattr(record, "event", "log"),
        "message": message,
        **facts,
    }
    return json.dumps(
        {key: _plain(value) for key, value in values.items() if value is not None}, default=str
    )


def _plain(value: Any) -> Any:
    """Return a value without NaN and infinity, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value
