"""Start a process, and stop it with everything that it has started."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_MARK = "DANCE_FLWR_FAMILY"
_PATIENCE_SECONDS = 10.0


class Family(subprocess.Popen[bytes]):
    """A process with all that it starts, wherever their parents are by now.

    A raylet starts workers until it ends, and ends before they do; some rename themselves, which
    overwrites their environment. So members are known by a mark in the environment, by a member as
    their parent, and by the session of one.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], home: Path, log: Path
    ) -> None:
        self.mark = uuid.uuid4().hex
        with log.open("ab") as output:
            super().__init__(
                command,
                env={**environment, _MARK: self.mark},
                cwd=home,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._sessions = {self.pid}

    def members(self) -> set[psutil.Process]:
        """Return the living processes of the family."""
        self.poll()  # a zombie is a member until its parent asks
        others = {process.pid: process for process in psutil.process_iter() if _lives(process)}
        found: dict[int, psutil.Process] = {}
        while new := {pid: other for pid, other in others.items() if self._has(other, found)}:
            found |= new
            for pid in new:
                del others[pid]
                with suppress(ProcessLookupError):
                    self._sessions.add(os.getsid(pid))
        return set(found.values())

    def _has(self, process: psutil.Process, found: Mapping[int, psutil.Process]) -> bool:
        with suppress(psutil.Error, ProcessLookupError):
            known = process.ppid() in found or os.getsid(process.pid) in self._sessions
            return known or process.environ().get(_MARK) == self.mark
        return False


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    home: Path,
    log: Path,
    launcher: Sequence[str] = (),
) -> Family:
    """Start a command of this environment in its own session, in `home`; append output to `log`.

    Parameters
    ----------
    launcher : prefix of the command, a program of the system with its arguments
    """
    return Family([*launcher, str(tool(command[0])), *command[1:]], environment, home, log)


def stop(family: Family, ask: bool = True) -> None:
    """Stop a process and all that it started: terminate, and kill what is left, or kill at once.

    Returns when none is left, or after twice `_PATIENCE_SECONDS` where one cannot be killed.
    """
    asked: set[psutil.Process] = set()
    began = time.monotonic()
    while members := family.members():
        seconds = time.monotonic() - began
        if seconds > 2 * _PATIENCE_SECONDS:
            break
        kill = not ask or seconds > _PATIENCE_SECONDS
        for member in members if kill else members - asked:
            with suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        asked |= members
        time.sleep(0.1)
    family.wait()


def tool(name: str) -> Path:
    """Return a command of this environment, not the first one on PATH."""
    return Path(sys.executable).parent / name
