"""Lock a folder for one process at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import Timeout

from dance_flwr.disk import private_lock
from dance_flwr.errors import UserError

SERVER = "the server of a run"
_LOCK = ".lock"
_CLOSING_SECONDS = 5.0
_PATIENCE_SECONDS = 0.3  # longer than `is_locked` holds the lock


@contextmanager
def exclusive(folder: Path, other: str) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing; a dying process releases it."""
    lock = private_lock(folder / _LOCK, timeout=_PATIENCE_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{folder}: expected nobody else at work here, found {other}; wait for it, or choose "
            "another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; nothing is created or written.

    Read access is enough, as a run may be watched by a user who cannot write there.
    """
    try:
        file = os.open(folder / _LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # A shared lock, so that two who look at once do not take each other for a server.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)  # this also releases the lock
    return False


def wait_until_left(folder: Path) -> None:
    """Wait until the server has closed a run's folder, `_CLOSING_SECONDS` at most.

    It still writes after its result.
    """
    deadline = time.monotonic() + _CLOSING_SECONDS
    while is_locked(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
