"""Signals that stop a command, programs of this environment, keepers."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `dance-flwr --help` does without
    import psutil


@contextmanager
def stopping_in_order(stop: Callable[[], object] | None = None) -> Iterator[None]:
    """During the block, SIGTERM and a closed terminal (SIGHUP) raise KeyboardInterrupt, as Ctrl-C.

    Ignored signals stay ignored, as under `nohup`. Use in the main thread.

    Parameters
    ----------
    stop : is called first, also by Ctrl-C; handlers of a library are then replaced, too
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop:
            stop()
        signal.default_int_handler(number, frame)

    numbers = (signal.SIGTERM, signal.SIGHUP, *([signal.SIGINT] if stop else []))
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler == signal.SIG_DFL or (stop and handler != signal.SIG_IGN):
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tool(name: str) -> Path:
    """Return a command of this environment, not the first one on PATH."""
    return Path(sys.executable).parent / name


def lives(process: "psutil.Process") -> bool:
    """Whether a process is neither gone nor a zombie."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def keeper(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module that cleans up when its standard input ends, as it does with this process."""
    return subprocess.Popen(
        # `-P`: a file in the working directory must not take the place of a module.
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # out of reach for the Ctrl-C of a terminal
    )
