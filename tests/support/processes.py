"""Start a command that may be stopped in any way, and see all that it started."""

import fcntl
import ipaddress
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from dance_flwr.runs.processes import lives

MARK = "DANCE_FLWR_TEST_MARK"
LOOK_SECONDS = 0.5  # a look reads every process of the machine


def free_port():
    """Return a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_until(done, seconds=60):
    """Wait until `done()` is true."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def marked(mark):
    """Return the living processes that inherited this mark."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and lives(process):
                found.append(process)
    return found


class Started:
    """A command of this environment, and every process that descends from it.

    A process that renames itself loses its environment, and one whose parent has died its parent:
    each is remembered from the time when it could be recognised, with its session.
    """

    def __init__(self, command, folder, *, terminal=False, **environment):
        self.mark, self.output = uuid.uuid4().hex, folder / "output.txt"
        self.seen, self.sessions, self._terminal = {}, set(), None
        program = [str(Path(sys.executable).parent / command[0]), *map(str, command[1:])]
        environment = os.environ | {MARK: self.mark, "HOME": str(folder)} | environment
        with self.output.open("wb") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            if terminal:
                self._terminal, inside = pty.openpty()
                streams = {"stdin": inside, "stdout": inside, "stderr": inside}
            self.process = subprocess.Popen(
                program,
                env=environment,
                cwd=folder,
                start_new_session=True,
                preexec_fn=take_terminal if terminal else heed_signals,
                **streams,
            )
        if terminal:
            os.close(inside)
        self.look()

    def look(self):
        """Return the living processes that descend from the command."""
        self.process.poll()
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                known = process.pid == self.process.pid or process.ppid() in self.seen
                known = known or os.getsid(process.pid) in self.sessions
                if known or process.environ().get(MARK) == self.mark:
                    self.seen.setdefault(process.pid, process)
                    if os.getsid(process.pid) != os.getsid(0):
                        self.sessions.add(os.getsid(process.pid))
        return [process for process in self.seen.values() if lives(process)]

    def wait_for(self, folder, pattern, seconds=600):
        """Wait until a file below `folder` has a line; look at the processes meanwhile."""
        deadline = time.monotonic() + seconds
        while not any(path.read_bytes().count(b"\n") for path in folder.glob(pattern)):
            assert time.monotonic() < deadline and self.process.poll() is None, self.text()
            self.look()
            time.sleep(LOOK_SECONDS)

    def close_terminal(self):
        """Close the terminal, as a lost connection does."""
        os.close(self._terminal)
        self._terminal = None

    def left(self, seconds):
        """Wait until no process is left, or so many seconds; return the names of what is left."""
        deadline = time.monotonic() + seconds
        while (living := self.look()) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return sorted(name(process) for process in living)

    def homes(self):
        """Return the private folders of a run's Ray."""
        found = set()
        for process in self.look():
            with suppress(psutil.Error):
                if "dance_flwr.runs.simulation.ray_keeper" in process.cmdline():
                    found.add(Path(process.cmdline()[-2]))
        return found

    def listeners(self):
        """Return (name, address, port) of the sockets on which the processes listen."""
        found = []
        for process in self.look():
            with suppress(psutil.Error):
                for socket in process.net_connections("inet"):
                    if socket.status == psutil.CONN_LISTEN or (
                        socket.type.name == "SOCK_DGRAM" and not socket.raddr
                    ):
                        found.append((name(process), socket.laddr.ip, socket.laddr.port))
        return sorted(found)

    @contextmanager
    def paused(self, start):
        """Stop the processes whose name starts so during the block: what they do takes no time."""
        found = [process for process in self.look() if name(process).startswith(start)]
        assert found, f"expected processes called {start}..."
        for process in found:
            process.suspend()
        try:
            yield
        finally:
            for process in found:
                process.resume()

    def text(self):
        """Return the last lines of the output."""
        return self.output.read_text(errors="replace")[-3000:]

    def kill(self):
        """Kill every process."""
        for _ in range(20):
            for process in self.look():
                with suppress(psutil.Error):
                    process.kill()
            if not self.look():
                break
            time.sleep(0.1)
        self.process.wait()
        if self._terminal is not None:
            self.close_terminal()


def heed_signals():
    """Ignore no signal, although the tests may run under `nohup` or in the background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def take_terminal():
    """Make standard input the terminal of this session, so that its end is a SIGHUP."""
    heed_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def name(process):
    """The name of a process, with the program that Python runs."""
    with suppress(psutil.Error):
        words = [Path(word).name for word in process.cmdline() if not word.startswith("-")]
        return " ".join(words[:2])
    return "?"


def is_public(address):
    """Whether other machines may reach a listener at this address."""
    number = ipaddress.ip_address(address.partition("%")[0])
    return not (getattr(number, "ipv4_mapped", None) or number).is_loopback
