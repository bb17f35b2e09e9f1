"""Start a process, and stop it with all that it has started."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from dance_flwr.runs.processes import lives, tool

_PATIENCE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_LIBC = ctypes.CDLL(None)


class ProcessTree(subprocess.Popen[bytes]):
    """A process, and those that it starts.

    The command is one of this environment, or a path; it has a session of its own. On Linux it is
    terminated when the thread that started it ends, in whatever way; what Flower and nginx start
    ends with its parent.

    Parameters
    ----------
    home : working directory; log : receives the output
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], home: Path, log: Path
    ) -> None:
        with log.open("ab") as output:
            super().__init__(
                [str(tool(command[0])), *command[1:]],
                env=environment,
                cwd=home,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=partial(_end_with, os.getpid()) if sys.platform == "linux" else None,
            )

    def members(self) -> set[psutil.Process]:
        """Return the living processes of the tree."""
        if self.poll() is not None:
            return set()
        own = psutil.Process(self.pid)
        return {own, *filter(lives, own.children(recursive=True))}


def stop(tree: ProcessTree) -> None:
    """Terminate a process tree, and kill what is left of it after `_PATIENCE_SECONDS`."""
    members = tree.members()
    tree.terminate()  # the others end with it
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(map(lives, members)) and time.monotonic() < deadline:
        time.sleep(0.05)
        tree.poll()
    for member in {*members, *tree.members()}:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    tree.wait()


def _end_with(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was killed before the kernel was asked to tell
        os.kill(os.getpid(), signal.SIGTERM)
