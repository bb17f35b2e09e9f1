"""One process at a time in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dance_flwr.errors import UserError

SERVER = "the server of a run"


@contextmanager
def alone(folder: Path, other: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made where it is missing; a process that dies gives it back.

    Parameters
    ----------
    other : what else may be at work there, for the message

    Raises
    ------
    UserError : it is
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
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
