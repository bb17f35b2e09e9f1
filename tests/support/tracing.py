"""A process of one client under strace, and what it opened while it answered a message.

Arrow's readers, memory maps of C++ libraries and other processes open files where no audit hook of
Python sees them; the kernel sees all of them. One process serves many runs.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import time

from support.accesses import LIST, LOOK, NETWORK, READ, START, WRITE, Access, Allowed
from support.node import Node
from support.project import PROJECT

# The process looks at these paths when it has loaded its libraries, before and after each answer.
READY, BEGIN, END = "/marked/ready", "/marked/begin", "/marked/end"
STRACE = ["strace", "-f", "-y", "-qq", "-s", "4096", "--seccomp-bpf"]
STRACE += ["-e", "trace=%file,%network,%process"]

LOOKS = {
    *("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink"),
    *("readlinkat", "statfs", "getxattr", "lgetxattr", "listxattr", "inotify_add_watch"),
}
OPENS = {"open", "openat", "openat2", "creat"}
STARTS = {"execve", "execveat", "fork", "vfork", "clone", "clone3"}
HARMLESS = {"getcwd", "fchdir", "exit", "exit_group", "wait4", "waitid", "socketpair", "kill"}
HARMLESS |= {"tgkill", "tkill", "rt_sigqueueinfo", "pidfd_open", "unshare", "umask"}
CALL = re.compile(r"^(?P<name>\w+)\((?P<rest>.*)$", re.DOTALL)
STRING = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<(?P<at>[^>]*)>)?, )?"(?P<path>(?:[^"\\]|\\.)*)"')
OPENED = re.compile(r"= \d+<(?P<path>[^>]*)>$")


def why_not():
    """Why no process can be traced here; "" if one can."""
    if sys.platform != "linux" or not shutil.which("strace"):
        return "no strace on this machine"
    done = subprocess.run([*STRACE, "-o", os.devnull, "true"], capture_output=True, text=True)
    return f"this user may not trace: {done.stderr.strip()[-200:]}" if done.returncode else ""


class Traced(Node):
    """A node under strace.

    `loading` holds what the process accessed before its first message, `seen` and `refused` what it
    did while it answered the messages since the last `forget`.
    """

    def __init__(self, folder):
        self.log, self._read = folder / "strace.log", 0
        self.forget()
        super().__init__(PROJECT, folder, [*STRACE, "-o", str(self.log)])
        lines = self._until(READY)
        self._client = int(lines[0].split()[0])  # strace is its parent
        self.loading = list(accesses(lines))

    def forget(self):
        self.seen, self.refused = [], []

    def answered(self, message):
        """Note what it accessed between two marks."""
        self._until(BEGIN)
        new, allowed = list(accesses(self._until(END))), Allowed(message, self._client)
        self.seen += new
        self.refused += [access for access in new if not allowed.covers(access)]

    def _until(self, mark):
        """The lines of the log from the last mark up to this one."""
        deadline, line = time.monotonic() + 600, re.compile(rb'"%b".*\n' % mark.encode())
        pause = 0.002  # seconds; longer while libraries are loaded, which fills the log
        while not (found := line.search(text := self._unread())):
            alive = self.process.poll() is None and time.monotonic() < deadline
            assert alive, self._errors.read_text()[-3000:]
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        self._read += found.end()
        return text[: found.start()].decode("utf-8", "replace").splitlines()[:-1]

    def _unread(self):
        if not self.log.exists():
            return b""
        with self.log.open("rb") as log:
            log.seek(self._read)
            return log.read()


def accesses(lines):
    """The accesses in lines of a log of `strace -f -y`."""
    waiting = {}
    for line in lines:
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            waiting[thread] = call.removesuffix("<unfinished ...>")
        elif call.startswith("<... "):
            yield from _of_call(waiting.pop(thread, "") + call.partition(" resumed>")[2])
        elif not call.startswith(("+++", "---")):
            yield from _of_call(call)
    for call in waiting.values():  # a call that did not return, such as an exit
        yield from _of_call(call)


def _of_call(call):
    found = CALL.match(call)
    assert found, f"expected a line of strace, found {call[:200]!r}"
    name, rest = found["name"], found["rest"]
    if name in HARMLESS:
        return
    if name in STARTS:
        if "CLONE_THREAD" not in rest:
            yield Access(START, call[:200])
    elif name in OPENS:
        yield _of_open(rest)
    elif name == "socket" or "sa_family" in rest:
        yield Access(NETWORK, call[:200])
    else:
        yield from (Access(LOOK if name in LOOKS else WRITE, path) for path in _paths(rest))


def _of_open(rest):
    flags = set(re.findall(r"O_[A-Z]+", rest.rpartition('"')[2]))
    changes = flags & {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"}
    kind = WRITE if changes else LIST if "O_DIRECTORY" in flags else READ
    opened = OPENED.search(rest)  # as the kernel resolved it; else as it was asked for
    return Access(kind, opened["path"] if opened else _paths(rest)[0])


def _paths(rest):
    """The absolute paths among the arguments of a call."""
    paths = []
    for found in STRING.finditer(rest):
        path = os.fsdecode(ast.literal_eval(f'b"{found["path"]}"'))
        if path:  # else the call is about an open descriptor
            paths.append(os.path.join(found["at"] or "", path))  # noqa: PTH118
    return paths
