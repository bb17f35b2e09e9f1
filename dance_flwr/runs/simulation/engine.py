"""Run the two apps on this machine: clients one after the other, or at once under Ray."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr import events
from dance_flwr.config.outputs import check_out
from dance_flwr.config.paths import PROJECT, RESULT, data_root
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.imports.loading import absolute_source
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.resume import refuse_earlier

OnRound = Callable[[Mapping[str, Any]], None]


def placed(config: RunConfig) -> RunConfig:
    """Return the configuration with a folder for the run and absolute paths.

    Clients of an engine may have another working directory: all paths that they get are absolute.
    """
    name = time.strftime(
        f"{Path(config.data).name}-{config.method}-seed{config.seed}-%Y%m%d-%H%M%S"
    )
    folder = Path(config.out).expanduser().resolve() if config.out else Path.cwd() / "runs" / name
    root = data_root(config)
    data = absolute_source(config.data, root)
    check_out(folder / RESULT, "`out`")
    if not is_locked(folder):  # else the run there is at work, and its lock refuses another one
        refuse_earlier(config, folder)
    return replace(config, out=str(folder), data=data, data_root=str(root))


def run_in_process(
    config: RunConfig, folder: Path, on_round: OnRound, name: str = ""
) -> dict[str, Any]:
    """Run the unmodified apps in this process, one client after the other; return the result."""
    with apps():
        import client_app
        import server_app
        from dance_flwr.runs.simulation.in_process import InProcessGrid

        keep_errors_only()
        # Another number for every run, as clients keep a folder for each.
        run_id = time.time_ns()
        grid = InProcessGrid(client_app.app, flatten(config), config.clients, run_id=run_id)
        server_app.run(grid, config, name or str(run_id), folder, on_round)
    return read_result(folder)


def keep_errors_only() -> None:
    """Keep the log of Flower, once it is imported, to its errors."""
    import logging

    # Rows of the history are the progress; other lines are for programs that read the log.
    if not events.structured():
        logging.getLogger("flwr").setLevel(logging.ERROR)


@contextmanager
def apps() -> Iterator[None]:
    """Make the two apps importable."""
    sys.path.insert(0, str(PROJECT))
    try:
        yield
    finally:
        sys.path.remove(str(PROJECT))
