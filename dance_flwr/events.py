"""Log the events of a run as JSON lines on stderr, if $DANCE_FLWR_LOG is `json`.

Flower's own lines and every `LOG` of the app have the same form, as event `log`. The output of a
ServerApp reaches `flwr log` only, so a server also writes its lines to `events.jsonl` in the folder
of the run. A formatter of the standard library is enough: a package would not handle the names of
run, round and client, nor NaN, either.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dance_flwr.disk import append_to, create_folder
from dance_flwr.escaping import EscapingFilter

VARIABLE, FILE = "DANCE_FLWR_LOG", "events.jsonl"
_EVENTS = logging.getLogger("dance_flwr.events")
# Without a handler, Python prints warnings of a logger to stderr.
_EVENTS.addHandler(logging.NullHandler())
# An event is a line for programs; people read those of Flower's logger.
_EVENTS.propagate = False
_CONTEXT: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=MappingProxyType({}))


def structured() -> bool:
    """Whether the user asked for JSON lines."""
    return os.environ.get(VARIABLE, "").strip().lower() == "json"


def install() -> None:
    """Escape every log line of this process, and turn it into JSON on stderr if the user asked."""
    flower = logging.getLogger("flwr")
    if not any(isinstance(each, EscapingFilter) for each in flower.filters):
        # On the logger, so that it holds for every handler, whoever adds it.
        flower.addFilter(EscapingFilter())
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
    """Log an event with its facts and those of `log_context`; facts that are None are omitted."""
    _EVENTS.log(level, "%s", message, extra={"event": event, "facts": facts})


def bind_context(**facts: Any) -> None:
    """Add facts to every later line, up to the end of the enclosing `log_context`."""
    _CONTEXT.set({**_CONTEXT.get(), **facts})


def context_fact(name: str) -> Any:
    """Return a fact of the current context; None if it has none of this name."""
    return _CONTEXT.get().get(name)


@contextmanager
def log_context(**facts: Any) -> Iterator[None]:
    """Add facts to every line of the block."""
    token = _CONTEXT.set({**_CONTEXT.get(), **facts})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


@contextmanager
def log_to(folder: Path, append: bool) -> Iterator[None]:
    """Also write the lines of the block to `events.jsonl`, if the user asked for JSON lines.

    Parameters
    ----------
    append : keep the lines that the run wrote before it stopped
    """
    if not structured():
        yield
        return
    # The first events come before the files of the run.
    create_folder(folder)
    append_to(folder / FILE).close()  # of this user alone, which the handler would not make it
    file = logging.FileHandler(folder / FILE, "a" if append else "w", encoding="utf-8")
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
    """Write to the current stderr, which Flower replaces to forward the output of a process."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # One write, as other threads write too.
            sys.stderr.write(f"{_Format().format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {**_CONTEXT.get(), **getattr(record, "facts", {})}
        if record.exc_info and record.exc_info[1]:
            facts["traceback"] = self.formatException(record.exc_info)
        values = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%FT%T}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage().strip(),
            **facts,
        }
        # As text where JSON does not know a fact: no line is lost for it.
        values |= {k: str(v) for k, v in values.items() if isinstance(v, float) and not isfinite(v)}
        return json.dumps({k: v for k, v in values.items() if v is not None}, default=str)
