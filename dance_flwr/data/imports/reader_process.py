"""The process that `sandbox` starts: it forks for every import, and the fork reads with bounds."""

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import VARIABLE, limits
from dance_flwr.data.imports.importer import needs_torch, prepare
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.sandbox import ANSWER
from dance_flwr.errors import UserError

_SLACK = 64 << 20  # bytes for the stacks and buffers of Arrow, whatever the bound


def serve() -> None:
    """Do the jobs that arrive as lines on the standard input, each in a fork, until it ends."""
    import psutil  # noqa: F401
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    with suppress(ImportError):  # Arrow loads it on first use
        import pandas  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    for line in sys.stdin:
        job = json.loads(line)
        if needs_torch([Path(job["folder"], path) for path in job["paths"]]):
            import torch_geometric.data  # noqa: F401 # once here, and not in every fork
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        else:
            _run(job)


def _run(job: dict[str, Any]) -> None:
    """Do a job in this process, write the answer, and end."""
    answer: dict[str, Any]
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ says before it aborts
        os.environ[VARIABLE] = job["limits"]
        os.chdir(job["folder"])
        out = Path(job["out"])
        _restrict()
        options: Any = {
            k: tuple(v) if isinstance(v, list) else v for k, v in job["options"].items()
        }
        answer = prepare([Path(p) for p in job["paths"]], job["name"], Options(**options), out)
    except MemoryError:
        answer = {"error": "memory", "message": ""}
    except UserError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        where = ", ".join(job["paths"])
        message = f"{where}: expected readable files, found: {reason}; export them again"
        answer = {"error": "DataError", "message": message}
    Path(job["out"], ANSWER).write_text(json.dumps(answer), "utf-8")
    os._exit(0)


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
