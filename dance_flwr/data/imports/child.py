"""Read files of strangers in a child process, within a bound of its memory and processor time.

A file of a few kilobytes can describe gigabytes, and a damaged one can end the process that reads
it. So a server process, which has loaded the libraries, forks for every import. The fork has its
own `RLIMIT_DATA` and writes the graph's folder. On macOS the kernel does not enforce
this limit for most allocations.
"""

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import VARIABLE, exceeded, limits, of_size
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.reading import needs_torch, prepare
from dance_flwr.errors import ConfigError, DataError, UserError

_SLACK = 64 << 20  # bytes for the stacks and buffers of Arrow, whatever the bound
_LOCK = threading.Lock()
_SERVERS: dict[int, "subprocess.Popen[str]"] = {}  # by the process that started it


def read_in_child(paths: list[Path], name: str, options: Options, out: Path) -> dict[str, Any]:
    """Have a child process read files and write their graph into a folder.

    Returns
    -------
    What `prepare` returns.

    Raises
    ------
    UserError : the files are invalid, or reading them exceeds a bound
    """
    limits()  # an invalid variable is refused here
    where = ", ".join(map(str, paths))
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    job: dict[str, Any] = {
        "paths": [str(path) for path in paths],
        "name": name,
        "options": asdict(options),
        "out": str(out),
        "folder": str(Path.cwd()),
        "limits": of_size(sum(file.stat().st_size for file in files if file.is_file())),
    }
    with _LOCK:
        code, text = _done(job)
    if code == -signal.SIGXCPU:
        raise exceeded(where, "seconds", job["limits"])
    if code:
        raise DataError(
            f"{where}: expected readable files, found that reading them ends the process "
            f"({signal.Signals(-code).name if code < 0 else code}); export them again"
        )
    answer: dict[str, Any] = json.loads(text)
    if "error" not in answer:
        return answer
    if answer["error"] == "memory":
        raise exceeded(where, "memory", job["limits"])
    kinds = {kind.__name__: kind for kind in (UserError, DataError, ConfigError)}
    raise kinds.get(answer["error"], DataError)(answer["message"])


def _done(job: dict[str, Any]) -> tuple[int, str]:
    """Return the exit code of the fork that did a job, negative for a signal, and its answer."""
    server = _SERVERS.get(os.getpid())
    if server is None or server.poll() is not None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
            "OMP_NUM_THREADS": "1",
            # The other pools reserve memory in advance.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        server = _SERVERS[os.getpid()] = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
            start_new_session=True,  # out of reach for the Ctrl-C of a terminal
        )
        atexit.register(_stop, os.getpid())
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(json.dumps(job) + "\n")
        code, text = json.loads(server.stdout.readline() or '[1, ""]')
        return code, text
    except BaseException:  # an interrupt: its answer must not be that of the next job
        server.kill()
        raise


def _stop(pid: int) -> None:
    server = _SERVERS.get(os.getpid())
    if pid == os.getpid() and server is not None:
        server.kill()
        server.communicate()  # closes its pipes


def serve() -> None:
    """Do the jobs that arrive as lines on the standard input, each in a fork, until it ends."""
    import psutil  # noqa: F401
    import pyarrow as pa

    with suppress(ImportError):  # Arrow loads it on first use
        import pandas  # noqa: F401

    pa.set_cpu_count(1)
    for line in sys.stdin:
        job = json.loads(line)
        if needs_torch([Path(job["folder"], path) for path in job["paths"]]):
            import torch_geometric.data  # noqa: F401 # once here, and not in every fork
        reader, writer = os.pipe()
        if child := os.fork():
            os.close(writer)
            with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
                answer = stream.read()
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(json.dumps([code, answer]), flush=True)
        else:
            _do(job, writer)


def _do(job: dict[str, Any], writer: int) -> None:
    """Do a job in this process, write the answer into a pipe, and end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ says before it aborts
        os.environ[VARIABLE] = job["limits"]
        os.chdir(job["folder"])
        _restrict()
        answer = answer_of(job)
    except MemoryError:
        answer = {"error": "memory"}
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    os._exit(0)


def answer_of(job: dict[str, Any]) -> dict[str, Any]:
    """Read the files of a job, and return what `prepare` returns or the error."""
    given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in job["options"].items()}
    paths, out = [Path(path) for path in job["paths"]], Path(job["out"])
    try:
        return prepare(paths, job["name"], Options(**given), out)
    except MemoryError:
        return {"error": "memory"}
    except UserError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        where = ", ".join(job["paths"])
        message = f"{where}: expected readable files, found: {reason}; export them again"
        return {"error": "DataError", "message": message}


def _restrict() -> None:
    """Limit this process's further memory and its processor time."""
    status = Path("/proc/self/status")
    used = 0
    if status.is_file():
        used = 1024 * int(status.read_text("ascii").partition("VmData:")[2].split()[0])
    data = used + _SLACK + limits().memory
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    resource.setrlimit(resource.RLIMIT_CPU, (limits().seconds, limits().seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
