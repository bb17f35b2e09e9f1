"""A made-up client of any size on disk, for measurements of growth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.nodes import rounds_per_condensation
from dance_flwr.data.card import ClientCard
from dance_flwr.data.digests import write_card
from dance_flwr.data.graphs.codes import NO_SPLIT, TRAIN, ids_digest
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.data.text.bank_slice import BankSlice, save_slice
from dance_flwr.llm.config import LlmConfig
from dance_flwr.nn.model import ModelShape
from dance_flwr.seeding import derive

RATIO = 0.08  # r
SEED = 0
SHAPE = ModelShape(text_dim=384, hidden_dim=64, classes=7)
_LABELLED = 0.6
_ROWS = 65_536  # of embeddings that are drawn at a time


@dataclass(frozen=True)
class Scale:
    """The size of a made-up client and of its round.

    Attributes
    ----------
    nodes : n; batch : K_b; degree : mean number of neighbours; chunks : per node
    candidates : q; chunk_budget : B_tok; hop1_budget : B_1
    """

    nodes: int = 8000
    batch: int = 512
    degree: int = 4
    chunks: int = 4
    candidates: int = 10
    chunk_budget: int = 8
    hop1_budget: int = 3

    @property
    def period(self) -> int:
        """Rounds from one node condensation to the next."""
        every = DanceConfig().core_refresh_every
        return rounds_per_condensation(self.nodes, RATIO, self.batch, every)

    def settings(self, rounds: int) -> RunConfig:
        """Return the configuration of a run of so many rounds."""
        section = DanceConfig(
            batch_nodes=self.batch,
            candidates=self.candidates,
            chunk_budget=self.chunk_budget,
            hop1_budget=self.hop1_budget,
        )
        return RunConfig(
            seed=SEED,
            rounds=rounds,
            condensation_ratio=RATIO,
            sections=(section, LlmConfig()),
            device="cpu",
        )


def write_client(folder: Path, scale: Scale) -> None:
    """Write the folder of one client: a sparse random graph, random chunks and labels.

    n * degree / 2 pairs of nodes are drawn uniformly; equal pairs count once, loops are omitted.
    Embeddings are random and of unit length, drawn block by block.
    """
    n, rng = scale.nodes, np.random.default_rng(derive(SEED, "growth-graph"))
    for part in ("arrays", "text"):
        (folder / part).mkdir(parents=True)
    ends = rng.integers(0, n, (n * scale.degree // 2, 2))
    indptr, indices = csr_from_pairs(ends[:, 0], ends[:, 1], n)
    split = np.where(rng.random(n) < _LABELLED, TRAIN, NO_SPLIT).astype(np.uint8)
    arrays: dict[str, NDArray[Any]] = {"indptr": indptr, "indices": indices, "split": split}
    arrays["labels"] = rng.integers(0, SHAPE.classes, n)
    for name, array in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    ids = [str(node) for node in range(n)]
    pq.write_table(pa.table({"id": ids}), folder / "nodes.parquet")
    names = tuple(str(c) for c in range(SHAPE.classes))
    _write_texts(folder, n, scale.chunks, rng)
    write_card(folder, ClientCard(0, 1, n, names, ids_digest(ids), "made up"))


def _write_texts(folder: Path, nodes: int, chunks: int, rng: np.random.Generator) -> None:
    count = nodes * chunks
    embeddings = np.empty((count, SHAPE.text_dim), np.float16)
    for first in range(0, count, _ROWS):
        rows = rng.standard_normal((min(_ROWS, count - first), SHAPE.text_dim), np.float32)
        embeddings[first : first + _ROWS] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    spans, tokens = np.zeros((count, 2), np.int32), np.full(count, 64, np.int32)
    np.save(folder / "arrays" / "chunk_sha256.npy", np.zeros((count, 32), np.uint8))
    meta = {"encoder": "made up", "weights_sha256": "made up", "dim": SHAPE.text_dim}
    part = BankSlice(embeddings, spans, tokens, chunks * np.arange(nodes + 1))
    save_slice(folder / "text", part, meta)
