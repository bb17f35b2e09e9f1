"""Seconds and memory of DANCE by number of clients on one machine, and whether they grow linearly.

    python studies/benchmarks/scale.py [--clients 5 50 200] [--engine in-process|ray]

Clients answer one after the other in one process, or under Flower's simulation runtime. Each number
of clients runs in fresh processes. The graph stays the same, so more clients are smaller clients:
what grows is the cost of a client apart from its nodes.

Memory is the proportional set size (resident where the system has none) of all processes of a run
together, sampled about once a second, without preparation. The first round also condenses the
cores. A line y = a + b * clients is fitted by least squares of relative deviations; the increase
per client between neighbouring rows shows the direction of deviations. Other work on the machine
increases the seconds, more so under the engine, as Ray's workers yield to it.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError

SAMPLE_SECONDS = 1.0
# Share of the time spent on sampling: reading the page tables of large processes is slow.
MOST_SAMPLING = 0.05
ROUND_TIMEOUT = 3600.0
LINEAR_WITHIN = 0.2  # largest relative deviation from a line
COLUMNS = (
    ("clients", 8),
    ("to first round s", 17),
    ("first round s", 14),
    ("round s (least, most)", 24),
    ("ms per client", 14),
    ("CPU s", 8),
    ("peak MB", 8),
    ("MB per added client", 20),
    ("kB up per client", 17),
)


@dataclass
class Usage:
    """What the processes of a run used: peak bytes, and CPU seconds by process."""

    peak: float = 0.0
    cpu: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What a run cost: seconds before the first round and per round, bytes up, and usage.

    Attributes
    ----------
    up : bytes per client and round
    """

    clients: int
    before: float
    rounds: list[float]
    up: float
    usage: Usage


def run(config: RunConfig, engine: str) -> tuple[float, list[float], float]:
    """Run the federation; return seconds before and of each round, and bytes up.

    Bytes are per client and round.
    """
    from dance_flwr.config.paths import HISTORY
    from dance_flwr.runs.simulation.in_process import run_in_process
    from dance_flwr.runs.simulation.ray_engine import run_under_ray

    start_time = time.time()

    def on_round(row: Mapping[str, Any]) -> None:
        _say(
            f"{config.clients} clients: round {row['round']} of {config.rounds} took "
            f"{row['round_seconds']:.1f} s"
        )

    start = run_under_ray if engine == "ray" else run_in_process
    result = start(config, Path(config.out), on_round)
    for folder in Path(result["partition_dir"]).glob(f"client-*/runs/{result['run']}"):
        shutil.rmtree(folder)
    # When rows are seen here depends on how busy the machine is; the last was written as it ended.
    ended = (Path(config.out) / HISTORY).stat().st_mtime
    before = ended - result["seconds_total"] - start_time
    rounds = [row["round_seconds"] for row in result["history"]]
    up = sum(sum(row["bytes_up"].values()) for row in result["history"])
    return before, rounds, up / config.clients / len(rounds)


def prepare_folders(config: RunConfig) -> None:
    """Prepare the client folders that are missing."""
    from dance_flwr.data.prepare import prepare

    prepare(config, _say)


def measure(values: Mapping[str, Any], engine: str) -> Cost:
    """Prepare and run with these keys, each in fresh processes, and sample those of the run.

    Raises
    ------
    UserError : the data cannot be prepared, or the run failed
    """
    from dance_flwr.config.paths import data_root

    with tempfile.TemporaryDirectory(prefix="dance-flwr-scale-") as out:
        root = data_root(parse(values))
        config = parse(dict(values) | {"out": out, "data-root": str(root)})
        with _fresh_process() as other:
            other.submit(prepare_folders, config).result()
        _say(f"{config.clients} clients: starting")
        with _fresh_process() as other, watch_usage(other.submit(os.getpid).result()) as usage:
            before, rounds, up = other.submit(run, config, engine).result()
    return Cost(config.clients, before, rounds, up, usage)


@contextmanager
def watch_usage(pid: int) -> Iterator[Usage]:
    """Sample a process and its descendants, about once a second, while the block runs."""
    usage, over = Usage(), threading.Event()

    def watch() -> None:
        pause = SAMPLE_SECONDS
        while not over.wait(pause):
            start_time = time.perf_counter()
            _sample(pid, usage)
            pause = max(SAMPLE_SECONDS, (time.perf_counter() - start_time) / MOST_SAMPLING)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()


def _sample(pid: int, usage: Usage) -> None:
    total = 0
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                memory, times = process.memory_full_info(), process.cpu_times()
                total += getattr(
                    memory, "pss", memory.rss
                )  # shared pages, such as Ray's, count once
                usage.cpu[process.pid] = times.user + times.system
    usage.peak = max(usage.peak, total)


def row(cost: Cost, smallest: Cost) -> str:
    """Return one line of the table; `smallest` is the run with the fewest clients."""
    middle, added = statistics.median(cost.rounds), cost.clients - smallest.clients
    cells = (
        str(cost.clients),
        f"{cost.before:.1f}",
        f"{cost.rounds[0]:.1f}",
        f"{middle:.2f} ({min(cost.rounds):.2f}, {max(cost.rounds):.2f})",
        f"{middle / cost.clients * 1e3:.0f}",
        f"{sum(cost.usage.cpu.values()):.0f}",
        f"{cost.usage.peak / 1e6:.0f}",
        f"{(cost.usage.peak - smallest.usage.peak) / 1e6 / added:.2f}" if added else "-",
        f"{cost.up / 1e3:.1f}",
    )
    return _line(cells)


def growth(what: str, unit: str, clients: Sequence[int], values: Sequence[float]) -> str:
    """Return one line on whether `values` lie on a straight line over `clients`."""
    if len(clients) < 3:
        return f"{what}: three numbers of clients or more show whether growth is linear"
    x, y = np.asarray(clients, float), np.asarray(values, float)
    slope, start = np.polyfit(x, y, 1, w=1 / y)
    worst = float(np.max(np.abs(start + slope * x - y) / y))
    steps = np.diff(y) / np.diff(x)
    verdict = (
        "linear"
        if worst <= LINEAR_WITHIN
        else "faster than linear"
        if steps[-1] > steps[0]
        else "below linear"
    )
    added = ", ".join(
        f"{step:.3g} from {a} to {b}"
        for step, a, b in zip(steps, clients, clients[1:], strict=False)
    )
    return (
        f"{what}: {verdict}; {start:.3g} + {slope:.3g} * clients {unit}, largest deviation "
        f"{worst:.0%}; per added client {added}"
    )


def _fresh_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True))


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Print one row per number of clients, then the growth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 50, 200])
    parser.add_argument(
        "--data", default="cora", help="data set name, or the folder of your own graph"
    )
    parser.add_argument("--partition", default="louvain", help="how nodes go to clients")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=("in-process", "ray"), default="in-process")
    options = parser.parse_args()
    shared = {"data": options.data, "partition": options.partition, "rounds": options.rounds}
    print(
        f"{options.data}, {options.partition}, {options.rounds} rounds, {options.engine}, "
        f"{os.cpu_count()} cores"
    )
    print(_line([heading for heading, _ in COLUMNS]), flush=True)
    costs: list[Cost] = []
    for clients in sorted(set(options.clients)):
        try:
            costs.append(
                measure(
                    shared | {"clients": clients, "round-timeout": ROUND_TIMEOUT},
                    engine=options.engine,
                )
            )
        except UserError as error:
            sys.exit(f"error: {clients} clients: {error}")
        print(row(costs[-1], costs[0]), flush=True)
    numbers = [cost.clients for cost in costs]
    print(
        growth(
            "seconds per round", "s", numbers, [statistics.median(cost.rounds) for cost in costs]
        )
    )
    print(
        growth(
            "CPU seconds of the run", "s", numbers, [sum(cost.usage.cpu.values()) for cost in costs]
        )
    )
    print(growth("peak memory", "MB", numbers, [cost.usage.peak / 1e6 for cost in costs]))


if __name__ == "__main__":
    main()
