"""`dance-flwr supernode`: Flower's SuperNode, with a process that has the libraries loaded for its
ClientApps.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dance_flwr.deploy import prefork as warm
from dance_flwr.simulation.superlink import tool

# Flower's SuperExec asks for tasks every second; often costs a few percent of a core, seldom makes
# messages wait.
POLL, POLL_SECONDS = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.25"


def become_supernode(arguments: Sequence[str]) -> None:
    """Replace this process by `flower-supernode ARGUMENTS`; its ClientApps are forked by
    `deploy/warm.py`.

    Flower finds the command `flwr-clientapp` on PATH; here a folder of our own comes first there,
    in which that name is a script that sends its arguments to the process that forks.
    """
    environment = {POLL: POLL_SECONDS} | dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="dance-flwr-warm-"))
    code = str(Path(warm.__file__).resolve())
    if _stand_in(folder, [sys.executable, "-I", "-S", code, "send", str(folder)]):
        subprocess.Popen([sys.executable, "-P", code, "serve", str(folder)], env=environment)
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', '')}"
    else:
        shutil.rmtree(folder)
        print(
            f"warning: expected a temporary folder that programs can be run from, found {folder.parent}; every message "
            "waits for its imports; name another folder with TMPDIR",
            file=sys.stderr,
        )
    program = str(tool("flower-supernode"))
    os.execve(program, [program, *arguments], environment)


def _stand_in(folder: Path, command: Sequence[str]) -> bool:
    """Write the script that runs `command` with its own arguments after it; return whether it can
    be run.
    """
    script = folder / warm.COMMAND
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    return os.access(script, os.X_OK)
