"""`dance-flwr supernode`: Flower's SuperNode with a process that preloads the libraries."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dance_flwr.deploy import prefork
from dance_flwr.disk import write_text
from dance_flwr.runs.simulation.process_tree import tool

# Flower's SuperExec asks for tasks every second by default. A shorter interval costs a few percent
# of a core, a longer one delays messages.
POLL, POLL_SECONDS = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.25"


def become_supernode(arguments: Sequence[str]) -> None:
    """Replace this process by `flower-supernode ARGUMENTS`, with ClientApps forked by `prefork`.

    Flower finds the command `flwr-clientapp` on PATH. A temporary folder is put first on PATH, in
    which that name is a script that sends its arguments to the process that forks.
    """
    # A value that the operator has set comes last, and stays.
    environment = {POLL: POLL_SECONDS} | dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="dance-flwr-prefork-"))
    code = str(Path(prefork.__file__).resolve())
    if _write_script(folder, [sys.executable, "-I", "-S", code, "send", str(folder)]):
        subprocess.Popen([sys.executable, "-P", code, "serve", str(folder)], env=environment)
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', '')}"
    else:
        shutil.rmtree(folder)
        print(
            "warning: expected a temporary folder that allows programs to run, "
            f"found {folder.parent}; every message waits for its imports; "
            "set TMPDIR to another folder",
            file=sys.stderr,
        )
    program = str(tool("flower-supernode"))
    os.execve(program, [program, *arguments], environment)


def _write_script(folder: Path, command: Sequence[str]) -> bool:
    """Write a script that runs `command` with the script's arguments; return whether it can run."""
    script = folder / prefork.COMMAND
    write_text(script, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    # Checked after the mode is set: a file system may still forbid programs.
    script.chmod(0o700)
    return os.access(script, os.X_OK)
