"""Seconds and memory of DANCE by number of clients on one machine.

    python studies/benchmarks/scale.py [--clients 5 50 200] [--engine in-process|ray]

Clients answer one after the other in one process, or under Flower's simulation runtime. Each number
of clients runs in fresh processes. The graph stays the same, so more clients are smaller clients:
what grows is the cost of a client apart from its nodes. Preparation does not count.

Memory is the peak of the proportional set size (resident where the system has none) of all
processes of a run together, sampled about once a second. The first round also condenses the cores.
Other work on the machine increases the seconds, more so under Ray, whose workers yield to it.
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
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from dance_flwr.config.paths import HISTORY, data_root
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError

ROUND_TIMEOUT = 3600.0
HEADINGS = ("to first round s", "first round s", "round s (least, most)", "CPU s", "peak MB")
HEADINGS += ("MB per added client", "kB up per client")
LINE = "{:>8} {:>17} {:>14} {:>24} {:>8} {:>8} {:>20} {:>17}"


@dataclass
class Usage:
    """What the processes of a run used: peak bytes, and CPU seconds by process."""

    peak: float = 0.0
    cpu: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Seconds before the first round and of each round, bytes up per client and round."""

    before: float
    rounds: list[float]
    up: float


def run(config: RunConfig, engine: str) -> Cost:
    """Run the federation."""
    from dance_flwr.runs.simulation.in_process import run_in_process
    from dance_flwr.runs.simulation.ray_engine import run_under_ray

    began = time.time()

    def on_round(row: Mapping[str, Any]) -> None:
        say(f"{config.clients} clients: round {row['round']} took {row['round_seconds']:.1f} s")

    start = run_under_ray if engine == "ray" else run_in_process
    result = start(config, Path(config.out), on_round)
    for folder in Path(result["partition_dir"]).glob(f"client-*/runs/{result['run']}"):
        shutil.rmtree(folder)
    # A busy machine calls `on_round` late; the last row was written as its round ended.
    ended = (Path(config.out) / HISTORY).stat().st_mtime
    rounds = [row["round_seconds"] for row in result["history"]]
    up = sum(sum(row["bytes_up"].values()) for row in result["history"])
    up /= config.clients * len(rounds)
    return Cost(ended - result["seconds_total"] - began, rounds, up)


def measure(values: Mapping[str, Any], engine: str) -> tuple[Cost, Usage]:
    """Prepare and run with these keys, each in a fresh process, and sample that of the run."""
    with tempfile.TemporaryDirectory(prefix="dance-flwr-scale-") as out:
        config = parse({**values, "out": out, "data-root": str(data_root(parse(values)))})
        with fresh_process() as other:
            other.submit(prepare, config, say).result()
        with fresh_process() as other, watch(other.submit(os.getpid).result()) as usage:
            return other.submit(run, config, engine).result(), usage


@contextmanager
def watch(pid: int) -> Iterator[Usage]:
    """Sample a process and its descendants, about once a second, while the block runs."""
    usage, over = Usage(), threading.Event()

    def sample() -> None:
        pause = 1.0
        while not over.wait(pause):
            start, total = time.perf_counter(), 0
            with suppress(psutil.NoSuchProcess):
                top = psutil.Process(pid)
                for process in (top, *top.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        memory, times = process.memory_full_info(), process.cpu_times()
                        # Proportional: shared pages, such as Ray's, count once.
                        total += getattr(memory, "pss", memory.rss)
                        usage.cpu[process.pid] = times.user + times.system
            usage.peak = max(usage.peak, total)
            # Reading the page tables of large processes is slow: a twentieth of the time at most.
            pause = max(1.0, 20 * (time.perf_counter() - start))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()


def fresh_process() -> ProcessPoolExecutor:
    """Return a pool of one new process."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Print one row per number of clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 50, 200])
    parser.add_argument("--data", default="cora", help="name of a data set, or folder of a graph")
    parser.add_argument("--partition", default="louvain", help="how nodes go to clients")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=("in-process", "ray"), default="in-process")
    options = parser.parse_args()
    shared = {"data": options.data, "partition": options.partition, "rounds": options.rounds}
    print(f"{options.data}, {options.rounds} rounds, {options.engine}, {os.cpu_count()} cores")
    print(LINE.format("clients", *HEADINGS), flush=True)
    smallest: tuple[int, float] | None = None
    for clients in sorted(set(options.clients)):
        values = shared | {"clients": clients, "round-timeout": ROUND_TIMEOUT}
        try:
            cost, usage = measure(values, options.engine)
        except UserError as error:
            sys.exit(f"error: {clients} clients: {error}")
        smallest = smallest or (clients, usage.peak)
        added = clients - smallest[0]
        cells = (
            f"{cost.before:.1f}",
            f"{cost.rounds[0]:.1f}",
            f"{statistics.median(cost.rounds):.2f} ({min(cost.rounds):.2f}, "
            f"{max(cost.rounds):.2f})",
            f"{sum(usage.cpu.values()):.0f}",
            f"{usage.peak / 1e6:.0f}",
            f"{(usage.peak - smallest[1]) / 1e6 / added:.2f}" if added else "-",
            f"{cost.up / 1e3:.1f}",
        )
        print(LINE.format(clients, *cells), flush=True)


if __name__ == "__main__":
    main()
