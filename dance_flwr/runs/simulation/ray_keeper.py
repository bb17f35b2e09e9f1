"""Stop what is left of a private Ray, and remove its folder, however its owner has ended.

python -m dance_flwr.runs.simulation.ray_keeper FOLDER OWNER
    wait until standard input ends, as it does with the process of this number, then clean up

The children of the owner end with it. Agents and workers, its grandchildren, have taken more than
a minute to notice that their parent is gone (decision 2).
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from dance_flwr.runs.processes import keeper, lives

VARIABLE = "RAY_TMPDIR"  # Ray's own, for the folder of its sockets and logs
_QUIET_SECONDS = 2.0  # without any: none is about to be started
_PATIENCE_SECONDS = 15.0


@contextmanager
def kept(folder: str) -> Iterator[None]:
    """Clean up after the Ray in this folder at the end of the block, or of this process."""
    process = keeper(__name__, folder, str(os.getpid()))
    os.environ[VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        # Without waiting: Ray has been shut down, and only leftovers are searched.
        if process.stdin:
            process.stdin.close()


def _users(folder: str, owner: int) -> list[psutil.Process]:
    """Return the processes of the Ray in this folder, without its owner.

    They have the folder in their environment, or, if they have renamed themselves, an open file
    in it.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == owner or not lives(process):
                continue
            if process.environ().get(VARIABLE) == folder or any(
                file.path.startswith(f"{folder}/") for file in process.open_files()
            ):
                found.append(process)
    return found


def _clean_up(folder: str, owner: int) -> None:
    begin = seen = time.monotonic()
    while (now := time.monotonic()) - seen < _QUIET_SECONDS and now - begin < _PATIENCE_SECONDS:
        for process in _users(folder, owner):
            seen = now
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the pipe decides
    sys.stdin.buffer.read()
    _clean_up(sys.argv[1], int(sys.argv[2]))
