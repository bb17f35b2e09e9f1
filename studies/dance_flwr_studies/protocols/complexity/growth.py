"""Seconds, bytes and memory of one client round of DANCE on made-up clients of growing size."""

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import torch

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import STATE
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.state import CONDENSATION, PLAN, RunFolder
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.dance.client import Dance
from dance_flwr.metrics import PHASES
from dance_flwr.seeding import seeded
from dance_flwr_studies.engine.cells import Label
from dance_flwr_studies.protocols.complexity.synthetic_client import (
    SEED,
    SHAPE,
    Scale,
    write_client,
)

MEASURE = f"{__name__}:measure"
_REPEATS = 2  # of a condensation and the rounds after it; one more measures memory
_EVERY = DanceConfig().text_refresh_every
_SAMPLE_SECONDS = 0.002
_PHASES = (*PHASES, "total")
_BASE = Scale()


@dataclass(frozen=True)
class Series:
    """One quantity that grows while all others are fixed.

    Attributes
    ----------
    key : field of `Scale`; symbol : what the paper calls it
    """

    key: str
    symbol: str
    sizes: tuple[int, ...]
    base: Scale = _BASE


# B_1 limits only nodes with more than B_1 neighbours.
SERIES = {
    "nodes": Series(
        "nodes",
        "n",
        (10_000, 30_000, 100_000, 300_000, 1_000_000),
        Scale(batch=256, chunks=2),
    ),
    "core": Series("batch", "K_b", (64, 128, 256, 512, 1024, 2048), Scale(nodes=32_000, chunks=2)),
    "candidates": Series("candidates", "q", (5, 10, 20, 40, 80)),
    "chunk-budget": Series("chunk_budget", "B_tok", (1, 2, 4, 8, 16)),
    "hop1-budget": Series(
        "hop1_budget", "B_1", (1, 2, 4, 8, 16), Scale(degree=32, chunk_budget=16)
    ),
}


def measure(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Measure a series at given sizes on one core, each size in a process of its own.

    An earlier process writes the clients and what is computed once per client.

    Parameters
    ----------
    labels : "series", name in `SERIES`, and "sizes", such as "1000 2000"

    Returns
    -------
    "sizes", "seconds" by phase, "bytes", "memory" and "survey_memory", each a list by size of what
    `cost_of` returns
    """
    series = SERIES[str(labels["series"])]
    sizes = [int(size) for size in str(labels["sizes"]).split()]
    scales = [replace(series.base, **{series.key: size}) for size in sizes]
    with tempfile.TemporaryDirectory(prefix="dance-flwr-growth-") as place:
        folders = [Path(place) / str(i) for i in range(len(sizes))]
        in_fresh_process(prepare_clients, scales, folders)
        costs = [
            in_fresh_process(cost_of, scale, folder)
            for scale, folder in zip(scales, folders, strict=True)
        ]
    return {
        "sizes": sizes,
        "seconds": {name: [cost["seconds"][name] for cost in costs] for name in _PHASES},
        **{name: [cost[name] for cost in costs] for name in ("bytes", "memory", "survey_memory")},
    }


def prepare_clients(scales: Sequence[Scale], folders: Sequence[Path]) -> None:
    """Write made-up clients, and the arrays that a client computes once."""
    torch.set_num_threads(1)
    for scale, folder in zip(scales, folders, strict=True):
        write_client(folder, scale)
        rounds = _Rounds(scale, folder)
        rounds.data.inputs(rounds.data.training_graph, rounds.model.backbone)


def cost_of(scale: Scale, folder: Path) -> dict[str, Any]:
    """Measure the rounds of a prepared client.

    A condensation and the rounds after it are repeated; the least seconds count.

    Returns
    -------
    "seconds" : phase -> ordinary round + (round that condenses - ordinary round) / period, in CPU
        seconds; an ordinary round is the mean over those between two condensations
    "bytes" : written per round, likewise shared out
    "memory", "survey_memory" : peak anonymous bytes of the process in ordinary rounds, and in one
        that condenses; 0 where the system does not say
    """
    torch.set_num_threads(1)
    rounds, period = _Rounds(scale, folder), scale.period
    starts = [1 + i * period for i in range(_REPEATS + 1)]
    after = range(1, 1 + min(_EVERY, period - 1))  # with one selection, or none beside the next one
    heavy, plain = [], []
    for start in starts[:-1]:
        heavy.append(rounds.train(start))
        plain.append([rounds.train(start + step) for step in after])
    light, heavy_bytes = rounds.stored(), rounds.condensation_bytes()
    # In rounds of their own, as the thread that samples would slow the timed ones.
    with peak_memory() as survey_memory:
        heavy.append(rounds.train(starts[-1]))
    with peak_memory() as memory:
        plain.append([rounds.train(starts[-1] + step) for step in after])
    seconds = {}
    for name in _PHASES:
        # The least: whatever disturbs a measurement adds to it. Evidence is selected in other
        # places of each repeat, so only their means can be compared.
        condensing = min(cost[name] for cost in heavy)
        ordinary = min(fmean(cost[name] for cost in repeat) for repeat in plain)
        seconds[name] = float(f"{ordinary + max(condensing - ordinary, 0) / period:.4g}")
    return {
        "seconds": seconds,
        "bytes": round(light + heavy_bytes / period),
        "memory": memory[0],
        "survey_memory": survey_memory[0],
    }


class _Rounds:
    """A client that trains round after round with the method's own code."""

    def __init__(self, scale: Scale, folder: Path) -> None:
        self.data = ClientData(folder, torch.device("cpu"))
        self._store = RunFolder(folder, "growth")
        self._config = scale.settings(scale.period * (_REPEATS + 2))
        with seeded(SEED, "growth-model"):
            self.model = DanceModel(
                SHAPE,
                self._config.backbone,
                self._config.dropout,
                label_evidence=DanceConfig.of(self._config).label_evidence,
            )

    def train(self, round_: int) -> dict[str, float]:
        """Train one round; return its seconds by phase, and CPU seconds in total."""
        # Of the processor: other work of the machine does not count.
        start = time.process_time()
        with seeded(SEED, "growth", round_=round_):
            info = RoundInfo(self._store.folder.name, round_, "made up")
            report = Dance().train(self.model, self.data, self._config, info)
        return report.seconds | {"total": time.process_time() - start}

    def stored(self) -> float:
        """Return the bytes that a round writes: its state, and its share of the last selection."""
        last = max(self._store.folder.glob(f"{PLAN}-*.npz"))
        with np.load(last) as arrays:
            cores = len(arrays["cores"])
        packs = self._store.all_packs()[-1]
        selection = last.stat().st_size + packs.stat().st_size
        return (self._store.folder / STATE).stat().st_size + selection / cores

    def condensation_bytes(self) -> int:
        """Return the bytes that a node condensation writes."""
        files = list(self._store.folder.glob(f"{CONDENSATION}-*.npz"))
        return max(file.stat().st_size for file in files)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Sample the anonymous bytes of this process in the block; yield a list with their maximum.

    Pages of mapped files do not count: the system takes them back when it needs them.
    """
    peak, stop = [0], threading.Event()

    def sample() -> None:
        while psutil.LINUX:
            memory = psutil.Process().memory_info()
            peak[0] = max(peak[0], memory.rss - memory.shared)
            if stop.wait(_SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the function returns in a process of its own, which ends."""
    # Spawned: a fork would begin with the memory of this process.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
