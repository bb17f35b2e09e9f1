"""The memory that a reader takes, measured in forks of a process that has loaded the libraries."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from dance_flwr.data.graphs.limits import VARIABLE
from support.project import PROJECT

# Follows the code that defines `read`. A fork's peak starts from what it shares.
SERVE = """
import json, os, sys, warnings
from pathlib import Path
from dance_flwr.errors import UserError
warnings.simplefilter("ignore")
status = Path("/proc/self/status")  # ru_maxrss would hold the parent's peak too
peak = lambda: 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
for job in sys.stdin:
    if child := os.fork():
        if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(sys.maxsize, f"the fork ended with {code}", sep="\\t", flush=True)
        continue
    small, job = json.loads(job)
    before, line = 0, "no refusal"
    try:
        read(*small)  # what is loaded on first use is not counted
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
        before = peak()
        read(*job)
    except UserError as error:
        line = str(error)
    except BaseException as error:  # or the test would wait for ever
        line = repr(error)
    print(peak() - before, line, sep="\\t", flush=True)
    os._exit(0)
os._exit(0)  # taking torch apart takes half a second
"""


@contextmanager
def measuring(code, bounds=""):
    """A process that calls the `read` of this code as often as it is asked to, in forks."""
    environment = {**os.environ, VARIABLE: bounds, "OMP_NUM_THREADS": "1"}
    command, pipe = [sys.executable, "-c", code + SERVE], subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=PROJECT, env=environment
    )
    yield process
    process.stdin.close()
    assert process.wait() == 0


def measured(process, small, job):
    """What `read(*job)` takes in bytes after `read(*small)`, and the line with which it ends."""
    process.stdin.write(json.dumps([[*map(str, small)], [*map(str, job)]]) + "\n")
    taken, line = process.stdout.readline().rstrip("\n").split("\t")
    print(f"{job}: {int(taken) >> 20} MiB, {line}")
    return int(taken), line


@contextmanager
def watching():
    """A dict whose `peak` is the largest memory, in bytes, of a fork of a child of this process."""
    seen, over = {"peak": 0}, threading.Event()

    def watch():
        while not over.wait(0.002):
            with suppress(psutil.Error, OSError, IndexError):
                for server in psutil.Process().children():
                    for fork in server.children():
                        status = Path(f"/proc/{fork.pid}/status").read_text()
                        peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
                        seen["peak"] = max(seen["peak"], peak)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
