"""The memory that reading takes, in forks of the process that imports start."""

import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def peak_bytes(process):
    """The largest memory that a process has had; ru_maxrss would hold its parent's peak too."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@contextmanager
def watching():
    """A dict whose `peak` is the largest memory, in bytes, of a fork of a child of this process."""
    seen, over = {"peak": 0}, threading.Event()

    def watch():
        while not over.wait(0.002):
            with suppress(psutil.Error, OSError, IndexError):
                for server in psutil.Process().children():
                    for fork in server.children():
                        seen["peak"] = max(seen["peak"], peak_bytes(fork.pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
