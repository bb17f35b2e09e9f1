"""Read files of strangers in a child process, within a bound of its memory and processor time.

A file of a few kilobytes can describe gigabytes, and a damaged one can end the process that reads
it. So a server process, which has loaded the libraries, forks for every import. The fork has its
own `RLIMIT_DATA` and hands its tables over as Arrow files. On macOS the kernel does not enforce
this limit for most allocations.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import exceeded, limits, of_size
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import ConfigError, DataError, UserError

ANSWER = "answer.json"
_LOCK = threading.Lock()
_SERVERS: dict[int, "subprocess.Popen[str]"] = {}  # by the process that started it


def read_in_child(paths: list[Path], name: str, options: Options, out: Path) -> dict[str, Any]:
    """Have a child process read files and write `nodes.arrow` and `edges.arrow` into a folder.

    Returns
    -------
    What `prepare` of `importer` returns.

    Raises
    ------
    UserError : the files are invalid, or reading them exceeds a bound
    """
    limits()  # an invalid variable is refused here
    where = ", ".join(map(str, paths))
    job: dict[str, Any] = {
        "paths": [str(path) for path in paths],
        "name": name,
        "options": asdict(options),
        "out": str(out),
        "folder": str(Path.cwd()),
        "limits": of_size(sum(map(_size, paths))),
    }
    with _LOCK:
        code = _status(job)
    if code == -signal.SIGXCPU:
        raise exceeded(where, "seconds", job["limits"])
    if code or not (out / ANSWER).is_file():
        raise DataError(
            f"{where}: expected readable files, found that reading them ends the process "
            f"({signal.Signals(-code).name if code < 0 else code}); export them again"
        )
    answer: dict[str, Any] = json.loads((out / ANSWER).read_text("utf-8"))
    if "error" not in answer:
        return answer
    if answer["error"] == "memory":
        raise exceeded(where, "memory", job["limits"])
    kinds = {kind.__name__: kind for kind in (UserError, DataError, ConfigError)}
    raise kinds.get(answer["error"], DataError)(answer["message"])


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _status(job: dict[str, Any]) -> int:
    """Return the exit code of the fork that did a job; negative for a signal."""
    server = _SERVERS.get(os.getpid())
    if server is None or server.poll() is not None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
            "OMP_NUM_THREADS": "1",
            # The other pools reserve memory in advance.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        code = "from dance_flwr.data.imports.reader_process import serve; serve()"
        server = _SERVERS[os.getpid()] = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )
        atexit.register(_stop, os.getpid())
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(json.dumps(job) + "\n")
        return int(server.stdout.readline() or 1)
    except BaseException:  # an interrupt: its answer must not be that of the next job
        server.kill()
        raise


def _stop(pid: int) -> None:
    server = _SERVERS.get(os.getpid())
    if pid == os.getpid() and server is not None:
        server.kill()
        server.communicate()  # closes its pipes
