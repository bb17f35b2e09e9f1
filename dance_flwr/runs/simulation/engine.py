"""Run the app in this process, or on a private SuperLink that lives as long as the run."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr import events
from dance_flwr.config.outputs import check_out
from dance_flwr.config.paths import ERROR, HISTORY, PROJECT, RESULT, data_root
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.imports.loading import absolute_source
from dance_flwr.errors import UserError
from dance_flwr.runs.history import whole_lines
from dance_flwr.runs.locks import SERVER, exclusive, is_locked
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.resume import forget, load_resumable, refuse_earlier, truncate_history
from dance_flwr.runs.simulation.superlink import SuperLink, private_superlink

OnRound = Callable[[Mapping[str, Any]], None]
_POLL_SECONDS = 0.5
_STATUS_EVERY_SECONDS = 15.0
_CLOSING_SECONDS = 5.0


def placed(config: RunConfig) -> RunConfig:
    """Return the configuration with a folder for the run and absolute paths.

    The server of an engine has another working directory: all paths that it gets are absolute.
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
    import logging

    with _apps():
        import client_app
        import server_app
        from dance_flwr.runs.simulation.in_process import InProcessGrid

        # Rows of the history are the progress; other lines are for programs that read the log.
        if not events.structured():
            logging.getLogger("flwr").setLevel(logging.ERROR)
        # Another number for every run, as clients keep a folder for each.
        run_id = time.time_ns()
        grid = InProcessGrid(client_app.app, flatten(config), config.clients, run_id=run_id)
        server_app.run(grid, config, name or str(run_id), folder, on_round)
    return read_result(folder)


def run_under_flower(config: RunConfig, folder: Path, on_round: OnRound) -> dict[str, Any]:
    """Run through Flower's simulation engine on a private SuperLink; return the result.

    `flwr run` reports success even if the ServerApp failed. The outcome is therefore read from the
    files of the ServerApp: `result.json`, or `error.txt` with the reason.
    """
    completed = 0
    with exclusive(folder, SERVER):  # released before the server takes it
        if config.resume:
            checkpoint = load_resumable(folder)
            completed = checkpoint.round
            # So that `follow` reports new rows only, after those of the checkpoint.
            truncate_history(checkpoint, folder)
        else:
            refuse_earlier(config, folder)
            forget(folder)
            for name in (RESULT, ERROR, HISTORY):
                (folder / name).unlink(missing_ok=True)
    with private_superlink(folder / "superlink.log") as link:
        run_id = link.submit(config, _resources(config))
        # Why (decision 2): `flwr run` exits with 0 even if the ServerApp failed.
        follow(link, run_id, folder, on_round, completed)
        wait_until_left(folder)
    return read_result(folder)


def follow(link: SuperLink, run_id: str, folder: Path, on_round: OnRound, seen: int = 0) -> None:
    """Follow the history of a run after its first `seen` rows, until a result or an error."""
    last_sign, known = time.monotonic(), _identity(folder)
    while True:
        known = known or _identity(folder)
        # Why (decision 2): a run whose folder was removed would compute for nobody.
        if _identity(folder) != known:
            raise UserError(
                f"{folder}: expected the folder of this run, found it removed; the run was stopped"
            )
        # Before the lines are read: a result that exists now was written after the last of them.
        done = (folder / RESULT).is_file() or (folder / ERROR).is_file()
        lines = whole_lines(folder / HISTORY)
        for line in lines[seen:]:
            on_round(json.loads(line))
            last_sign = time.monotonic()  # a row is a sign of life
        seen = len(lines)
        if (folder / ERROR).is_file():
            raise UserError((folder / ERROR).read_text(encoding="utf-8").strip())
        if done:
            return
        # Each question is a process of `flwr`, so it is asked after a silence only.
        if time.monotonic() - last_sign > _STATUS_EVERY_SECONDS:
            last_sign = time.monotonic()
            status = link.status(run_id)
            if (
                # Looked at again: the files may have appeared after the first look and before the
                # status.
                status.startswith("finished")
                and not (folder / RESULT).is_file()
                and not (folder / ERROR).is_file()
            ):
                raise UserError(f"the run ended as {status!r} without a result; see {link.log}")
        time.sleep(_POLL_SECONDS)


def wait_until_left(folder: Path) -> None:
    """Wait until the server has closed a run's folder; its result is not the last that it writes.

    A server that does not close it in `_CLOSING_SECONDS` is left to be stopped.
    """
    deadline = time.monotonic() + _CLOSING_SECONDS
    while is_locked(folder) and time.monotonic() < deadline:
        time.sleep(0.05)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode, which tell a folder from another in its place; None without it."""
    with suppress(FileNotFoundError):
        facts = folder.stat()
        return facts.st_dev, facts.st_ino
    return None


@contextmanager
def _apps() -> Iterator[None]:
    """Make the two apps importable."""
    sys.path.insert(0, str(PROJECT))
    try:
        yield
    finally:
        sys.path.remove(str(PROJECT))


def _resources(config: RunConfig) -> str:
    """Return Flower's --federation-config: per client one node, one core and a share of a GPU.

    Flower divides the GPUs by the share in single precision and rounds down: 0.2 would give four
    clients per GPU, not five, so the share is slightly smaller than its fraction.
    """
    import torch

    resources = f"num-supernodes={config.clients} client-resources-num-cpus=1"
    # Without a share of a GPU, Ray hides every GPU from the clients.
    if config.device != "auto" or not torch.cuda.is_available():
        return resources
    together = math.ceil(config.clients / torch.cuda.device_count())
    share = 1.0 if together == 1 else (10_000 // together - 1) / 10_000
    return f"{resources} client-resources-num-gpus={share:g}"
