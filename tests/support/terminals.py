"""Commands on a real terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("dance-flwr"))
COLUMNS = 72


def on_terminal(*words, until="", columns=COLUMNS, home=None, seconds=600):
    """Run a command on a terminal; return its exit code and all that it wrote.

    With `until` it is interrupted as soon as it has written this pattern.
    """
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "DANCE_FLWR_LOG")}
    environment |= {"DANCE_FLWR_HOME": str(home)} if home else {}
    process = subprocess.Popen(
        [PROGRAM, *map(str, words)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), its),
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(its)
    text, deadline = b"", time.monotonic() + seconds
    try:
        while block := _read(ours):
            text += block
            assert time.monotonic() < deadline, text
            if until and re.search(until, text.decode(errors="replace"), re.DOTALL):
                process.send_signal(signal.SIGINT)
                until = ""
        return process.wait(60), text.decode()
    finally:
        process.kill()
        os.close(ours)


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the last process that had it open is gone
        return b""


def states(text, what, unit=""):
    """The different numbers that a bar of this name showed."""
    found = re.findall(rf"\r{what} +(?:\d+%\|[^|]*\| )?([\d,]+)(?: of [\d,]+)?{unit}", text)
    return list(dict.fromkeys(found))
