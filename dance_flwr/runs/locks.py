"""One process at a time in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dance_flwr.errors import UserError

SERVER = "the server of a run"
_LOCK = ".lock"
_PATIENCE_SECONDS = 0.3  # longer than `held` has the lock


@contextmanager
def exclusive(folder: Path, other: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made where it is missing; a process that dies gives it
    back.

    Parameters
    ----------
    other : what else may be at work there, for the message

    Raises
    ------
    UserError : it is
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, timeout=_PATIENCE_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{folder}: expected nobody else at work here, found {other}; wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


def held(folder: Path) -> bool:
    """Say whether a process holds the lock of a folder; nothing is made or written there.

    A file that may only be read is enough. Where there are no such locks (Windows), it is asked for
    and given back.
    """
    try:
        import fcntl
    except ImportError:
        return (folder / _LOCK).is_file() and not _free(folder)
    try:
        file = os.open(folder / _LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)  # which also gives the lock back
    return False


def _free(folder: Path) -> bool:
    with suppress(Timeout), FileLock(folder / _LOCK, timeout=0):
        return True
    return False
