"""Watch what this process opens, by Python's audit hooks, while a client answers a message."""

import os
import sys
from pathlib import Path

from support.accesses import LIST, NETWORK, READ, START, WRITE, Access, Allowed

# Event -> how many of its arguments are paths.
LISTINGS = {"os.listdir": 1, "os.scandir": 1, "os.chdir": 1, "os.fwalk": 1}
CHANGES = {
    **{"os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.link": 2},
    **{"os.symlink": 2, "os.truncate": 1, "os.chmod": 1, "os.chown": 1, "os.utime": 1},
    **{"os.mkfifo": 1, "os.mknod": 1, "os.setxattr": 1, "os.removexattr": 1},
}
READINGS = {"ctypes.dlopen": 1, "sqlite3.connect": 1}
STARTS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.spawn", "os.posix_spawn"),
    *("os.fork", "os.forkpty", "pty.spawn", "os.startfile"),
}
CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """What the receiver of the last message accesses until it replies: (client, access).

    `refused` holds what it may not do. An audit hook cannot be removed: `close` makes it idle.
    """

    def __init__(self):
        self.active, self.allowed = None, None
        self.seen, self.refused = [], []
        sys.addaudithook(self._hook)

    def close(self):
        self.active = None

    def see(self, message):
        """Watch the receiver of a message, and nobody after a reply."""
        if message.metadata.src_node_id:
            self.active = None
        else:
            self.allowed = Allowed(message, os.getpid())
            self.active = message.metadata.dst_node_id - 1

    def note(self, access):
        """Keep an access of the active client; those that it may not do also in `refused`."""
        client, self.active = self.active, None  # what is done here is not the client's
        try:
            self.seen.append((client, access))
            if not self.allowed.covers(access):
                self.refused.append((client, access))
        finally:
            self.active = client

    def _hook(self, event, arguments):
        if self.active is not None:
            for access in accesses(event, arguments):
                self.note(access)


def accesses(event, arguments):
    """The accesses of an audit event."""
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, int):  # a descriptor was opened before
            yield Access(WRITE if (flags or 0) & CHANGING else READ, _text(path))
    elif event == "mmap.__new__":
        if arguments[0] >= 0:
            yield Access(READ, str(Path(f"/proc/self/fd/{arguments[0]}").readlink()))
    elif event in STARTS:
        yield Access(START, f"{event} {arguments}"[:200])
    elif event.startswith("socket.") and event != "socket.__new__":
        yield Access(NETWORK, f"{event} {arguments[1:]}"[:200])
    else:
        for kind, events in ((LIST, LISTINGS), (WRITE, CHANGES), (READ, READINGS)):
            for path in arguments[: events.get(event, 0)]:
                if not isinstance(path, int):
                    yield Access(kind, _text(path))


def _text(path):
    return os.fsdecode(path) if path is not None else os.curdir
