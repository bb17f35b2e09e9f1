"""Signals that stop a command, programs of this environment, keepers."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stopping_in_order(always: bool = False) -> Iterator[None]:
    """During the block, SIGTERM and a closed terminal (SIGHUP) raise KeyboardInterrupt, as Ctrl-C.

    Ignored signals stay ignored, as under `nohup`. Use in the main thread.

    Parameters
    ----------
    always : also replace the handler of a library
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler == signal.SIG_DFL or (always and handler != signal.SIG_IGN):
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tool(name: str) -> Path:
    """Return a command of this environment, not the first one on PATH."""
    return Path(sys.executable).parent / name


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
