"""Seconds of one client round of DANCE on synthetic clients of growing size, by phase."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.algorithm import train_round
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.data.text.table import TextTable
from dance_flwr.experiments.cells import Label
from dance_flwr.metrics import COUNTS, PHASES
from dance_flwr.nn.model import ModelShape
from dance_flwr.seeding import derive, generator, seeded

CHUNKS_PER_NODE = 4
_TEXT_DIM, _CLASSES, _LABELLED, _SEED = 384, 7, 0.6, 0
_REPEATS = 5  # rounds, after a first one that is omitted


@dataclass(frozen=True)
class Scale:
    """The size of a synthetic client and of its round.

    Attributes
    ----------
    nodes : n; core : K; degree : mean number of neighbours
    candidates : q; chunk_budget : B_tok; hop1_budget : B_1
    """

    nodes: int = 4000
    core: int = 500
    degree: int = 4
    candidates: int = 10
    chunk_budget: int = 8
    hop1_budget: int = 3


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
    base: Scale = Scale()


# B_1 limits only nodes with more than B_1 neighbours.
SERIES = {
    "nodes": Series("nodes", "n", (2000, 4000, 8000, 16000, 32000), Scale(core=128)),
    "core": Series("core", "K", (125, 250, 500, 1000, 2000)),
    "candidates": Series("candidates", "q", (5, 10, 20, 40, 80)),
    "chunk-budget": Series("chunk_budget", "B_tok", (1, 2, 4, 8, 16)),
    "hop1-budget": Series(
        "hop1_budget", "B_1", (1, 2, 4, 8, 16), Scale(degree=32, chunk_budget=16)
    ),
}


def measure(labels: Mapping[str, Label]) -> dict[str, Any]:
    """Time a series at given sizes on one core.

    Parameters
    ----------
    labels : "series", name in `SERIES`, and "sizes", such as "1000 2000"

    Returns
    -------
    "sizes", "seconds" (phase -> median over rounds, per size), "bytes" (what the client stores of a
    run: core, adjacency and packs), "counts" (evidence of one core, per size) and "scale" (the
    fixed quantities)
    """
    series = SERIES[str(labels["series"])]
    sizes = [int(size) for size in str(labels["sizes"]).split()]
    torch.set_num_threads(1)
    # Sizes in turn: a slow spell of the machine slows every size.
    clients = [_Round(replace(series.base, **{series.key: size})) for size in sizes]
    rows = [[client.seconds() for client in clients] for _ in range(1 + _REPEATS)][1:]
    return {
        "sizes": sizes,
        "seconds": {
            phase: [
                float(f"{median(row[i][phase] for row in rows):.4g}") for i in range(len(sizes))
            ]
            for phase in (*PHASES, "total")
        },
        "bytes": [client.stored_bytes() for client in clients],
        "counts": {name: [client.counts[name] for client in clients] for name in COUNTS},
        "scale": vars(series.base),
        "repeats": _REPEATS,
    }


class _Round:
    """A synthetic client that trains round after round with the method's own code."""

    def __init__(self, scale: Scale) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._site = synthetic_client(scale)
        self._store = RunFolder(Path(self._folder.name), "growth")
        self._config = RunConfig(
            seed=_SEED,
            local_epochs=1,
            rounds=1 + _REPEATS,
            condensation_ratio=scale.core / scale.nodes,
            sections=(
                DanceConfig(
                    core_refresh_every=1,
                    candidates=scale.candidates,
                    chunk_budget=scale.chunk_budget,
                    hop1_budget=scale.hop1_budget,
                    evidence_keep="all",
                ),
            ),
        )
        shape = ModelShape(_TEXT_DIM, self._config.hidden_dim, _CLASSES)
        with seeded(_SEED, "growth-model"):
            attention_dim = DanceConfig.of(self._config).attention_dim
            self._model = DanceModel(
                shape,
                self._config.backbone,
                self._config.dropout,
                attention_dim=attention_dim,
            )
        self._rounds = 0
        self.counts: dict[str, int] = {}

    def seconds(self) -> dict[str, float]:
        """Train the next round and return its seconds by phase and in total."""
        self._rounds += 1
        with seeded(_SEED, "growth", round_=self._rounds):
            report = train_round(
                self._model,
                self._site,
                self._store,
                self._config,
                round_=self._rounds,
                model_id="made up",
            )
        self.counts = report.counts
        return report.seconds | {"total": sum(report.seconds.values())}

    def stored_bytes(self) -> int:
        """Return the size of the client's state and of the packs of the last round."""
        files = (self._store.folder / "state.npz", self._store.round_path(self._rounds))
        return sum(file.stat().st_size for file in files)


class _MemorySite(Site):
    """A client without a folder."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def synthetic_client(scale: Scale) -> Site:
    """Return what a round reads of a `Site`: a sparse random graph, random chunks and labels.

    n * degree / 2 pairs of nodes are drawn uniformly; equal pairs count once, loops are omitted.
    Every node has 4 chunks with random unit embeddings.
    """
    n, chunks = scale.nodes, scale.nodes * CHUNKS_PER_NODE
    rng = np.random.default_rng(derive(_SEED, "growth-graph"))
    ends = rng.integers(0, n, (n * scale.degree // 2, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    labels = np.where(rng.random(n) < _LABELLED, rng.integers(0, _CLASSES, n), -1)
    vectors = F.normalize(
        torch.randn(chunks, _TEXT_DIM, generator=generator(_SEED, "growth-text")), dim=1
    )
    graph = LocalGraph(*csr_from_pairs(ends[:, 0], ends[:, 1], n), torch.ones(n, dtype=torch.bool))
    return _MemorySite(
        device=torch.device("cpu"),
        card=SimpleNamespace(client=0, num_nodes=n, class_names=[str(c) for c in range(_CLASSES)]),
        table=TextTable.from_chunks(vectors, CHUNKS_PER_NODE * torch.arange(n + 1)),
        bank=SimpleNamespace(
            tokens=np.full(chunks, 64, np.int32), spans=np.zeros((chunks, 2), np.int32)
        ),
        chunk_sha256=np.zeros((chunks, 32), np.uint8),
        graph=graph,
        training_graph=graph,
        train_labels=torch.as_tensor(labels),
    )


def sizes_label(sizes: Sequence[int]) -> str:
    """Return sizes as `measure` reads them."""
    return " ".join(map(str, sizes))
