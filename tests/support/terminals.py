"""Commands on a real terminal."""

import os
import re
import signal
import sys
from pathlib import Path

import pexpect

PROGRAM = str(Path(sys.executable).with_name("dance-flwr"))
COLUMNS = 72


def on_terminal(*words, until="", columns=COLUMNS, home=None):
    """Run a command on a terminal; return its exit code and all that it wrote.

    With `until` it is interrupted as soon as it has written this pattern.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "DANCE_FLWR_LOG")}
    environment |= {"DANCE_FLWR_HOME": str(home)} if home else {}
    process = pexpect.spawn(
        PROGRAM,
        [*map(str, words)],
        timeout=600,
        env=environment,
        encoding="utf-8",
        dimensions=(24, columns),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        seen = ""
        if until:
            process.expect(until)
            seen = process.before + process.after
            process.kill(signal.SIGINT)
        seen += process.read()
        return process.wait(), seen
    finally:
        process.close(force=True)


def states(text, what, unit=""):
    """The different numbers that a bar of this name showed."""
    found = re.findall(rf"\r{what} +(?:\d+%\|[^|]*\| )?([\d,]+)(?: of [\d,]+)?{unit}", text)
    return list(dict.fromkeys(found))
