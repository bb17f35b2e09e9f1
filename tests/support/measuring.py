"""The memory that a reader takes, measured in forks of a process that has loaded the libraries."""

import os
import subprocess
import sys
from contextlib import contextmanager

from dance_flwr.data.graphs.limits import VARIABLE
from support.project import PROJECT


@contextmanager
def measuring(code, bounds):
    """A process that runs this code and answers each line of its input with "bytes\\tline"."""
    environment = {**os.environ, VARIABLE: bounds, "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=PROJECT, env=environment
    )
    yield process
    process.stdin.close()
    assert process.wait() == 0


def measured(process, *job):
    """What a job takes in bytes above a small one of its kind, and the line with which it ends."""
    process.stdin.write("\t".join(map(str, job)) + "\n")
    taken, line = process.stdout.readline().rstrip("\n").split("\t")
    print(f"{job}: {int(taken) >> 20} MiB, {line}")
    return int(taken), line
