"""Start a process, and stop its whole tree, even if this process is killed.

python -m dance_flwr.deploy.process_tree MARK
    wait until standard input ends, then stop the processes with this mark
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from dance_flwr.runs.processes import keeper, tool

_MARK = "DANCE_FLWR_PROCESS_TREE"
_PATIENCE_SECONDS = 5.0


class Members:
    """The living processes with a mark and all that they have started, with or without parents.

    A raylet starts workers until it ends, and ends before they do; some rename themselves, which
    overwrites their environment; nobody can read the environment of a SuperNode. So a member has
    the mark in its environment, a member as its parent, or the session of a member.

    Attributes
    ----------
    sessions : ids of sessions whose processes are members
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.sessions: set[int] = set()

    def __call__(self) -> set[psutil.Process]:
        """Return the living members."""
        others = {process.pid: process for process in psutil.process_iter() if _lives(process)}
        members: dict[int, psutil.Process] = {}
        # Until none is added: the parent of a member may be found just before.
        while new := {pid: other for pid, other in others.items() if self._has(other, members)}:
            members |= new
            for pid in new:
                del others[pid]
                with suppress(ProcessLookupError):
                    self.sessions.add(os.getsid(pid))
        return set(members.values())

    def _has(self, process: psutil.Process, members: Mapping[int, psutil.Process]) -> bool:
        with suppress(psutil.Error, ProcessLookupError):
            known = process.ppid() in members or os.getsid(process.pid) in self.sessions
            return known or process.environ().get(_MARK) == self.mark
        return False


class ProcessTree(subprocess.Popen[bytes]):
    """A process tree, and a keeper that stops it if this process dies.

    The command is one of this environment, or a path; it has a session of its own. The
    keeper waits at a pipe that the system closes when this process ends, in whatever way.

    Parameters
    ----------
    home : working directory; log : receives the output

    Attributes
    ----------
    badge : environment variable that makes any process a member
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        home: Path,
        log: Path,
    ) -> None:
        self._members = Members(uuid.uuid4().hex)
        self.badge = {_MARK: self._members.mark}
        # First: no moment without it. PR_SET_PDEATHSIG would reach the first generation alone.
        self._keeper = keeper(__name__, self._members.mark)
        try:
            with log.open("ab") as output:
                super().__init__(
                    [str(tool(command[0])), *command[1:]],
                    env={**environment, **self.badge},
                    cwd=home,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            self._members.sessions.add(self.pid)
            assert self._keeper.stdin
            with suppress(BrokenPipeError):  # without its keeper a process still runs
                self._keeper.stdin.write(b"%d" % self.pid)
                self._keeper.stdin.flush()
        except BaseException:
            self.dismiss()
            raise

    def members(self) -> set[psutil.Process]:
        """Return the living processes of the tree."""
        self.poll()  # a zombie is a member until its parent asks
        return self._members()

    def dismiss(self) -> None:
        """Let the keeper end, which stops what is left."""
        self._keeper.communicate()


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def stop(tree: ProcessTree, ask: bool = True) -> None:
    """Stop a process tree: terminate it and kill what is left, or kill at once.

    Returns when none is left, or after twice `_PATIENCE_SECONDS` where one cannot be killed.
    """
    _end(tree.members, ask)
    tree.wait()
    tree.dismiss()


def _end(members: Callable[[], set[psutil.Process]], ask: bool) -> None:
    terminated: set[psutil.Process] = set()
    began = time.monotonic()
    # Looked up each time: what is being stopped may still start others.
    while living := members():
        seconds = time.monotonic() - began
        # A process in the kernel cannot be killed: waiting for it would never end.
        if seconds > 2 * _PATIENCE_SECONDS:
            break
        kill = not ask or seconds > _PATIENCE_SECONDS
        # SIGTERM once each, as a second one may cut off an orderly end; SIGKILL as often as needed.
        for member in living if kill else living - terminated:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        terminated |= living
        time.sleep(0.1)


def _keep(mark: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the pipe decides
    members = Members(mark)
    if session := sys.stdin.buffer.read():
        members.sessions.add(int(session))
    _end(members, True)


if __name__ == "__main__":
    _keep(sys.argv[1])
