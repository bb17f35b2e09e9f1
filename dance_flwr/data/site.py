"""`Site`: one client's local data. It opens the client's own folder and nothing else."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from torch import Tensor

from dance_flwr.data.graphs.graph import TEST, TRAIN, ids_digest
from dance_flwr.data.text.bank import META, BankSlice, load_slice, read_meta
from dance_flwr.data.text.table import TextTable
from dance_flwr.errors import DataError
from dance_flwr.nn.hops import Hops
from dance_flwr.nn.propagation import operator

# Chunk embeddings larger than this as float32 stay memory-mapped in float16.
_MOST_BYTES_IN_MEMORY = 512 * 2**20

CARD = "client.json"
ARRAYS = ("indptr", "indices", "labels", "split")


@dataclass(frozen=True)
class SiteCard:
    """Content of `client.json`: which client this is, and the classes that its model needs."""

    client: int
    clients: int
    num_nodes: int
    class_names: tuple[str, ...]
    ids_sha256: str
    partition_sha256: str


class LocalGraph:
    """A graph on the client's nodes, for forward passes and node selection.

    Parameters
    ----------
    indptr, indices : CSR neighbour lists of n nodes
    visible : [n] bool; other nodes have no edges here and never enter a core
    """

    def __init__(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int64], visible: Tensor
    ) -> None:
        self._indptr, self._indices = indptr, indices
        self.visible = visible
        self._operators: dict[str, Tensor] = {}

    @cached_property
    def hops(self) -> Hops:
        """1-hop and 2-hop neighbourhoods."""
        return Hops(self._indptr, self._indices, self.visible.device)

    def edges(self) -> tuple[Tensor, Tensor]:
        """Return (rows, cols), [E] int64 each: every edge in both directions."""
        device = self.visible.device
        degrees = torch.tensor(np.diff(self._indptr), device=device)
        rows = torch.repeat_interleave(torch.arange(self.visible.numel(), device=device), degrees)
        return rows, torch.tensor(self._indices, device=device)

    def induced_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (rows, cols, weights) of the edges among `nodes` ([K] int64), numbered 0..K-1.

        All weights are 1.
        """
        place = torch.full_like(self.visible, -1, dtype=torch.int64)
        place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        rows, cols = (place[ends] for ends in self.edges())
        inside = (rows >= 0) & (cols >= 0)
        return rows[inside], cols[inside], torch.ones(int(inside.sum()), device=nodes.device)

    def operator(self, kind: str) -> Tensor:
        """Return the propagation operator, computed once per kind."""
        if kind not in self._operators:
            rows, cols = self.edges()
            weights = torch.ones(cols.numel(), device=cols.device)
            self._operators[kind] = operator(kind, rows, cols, weights, self.visible.numel())
        return self._operators[kind]


class Site:
    """One client's graph, text bank and labels on one device, loaded lazily and once per process.

    Parameters
    ----------
    folder : the client's folder (`client-K/`)
    device : device of the tensors
    inductive : whether test nodes and their edges are absent in training; they are always present
        at evaluation

    Raises
    ------
    DataError : the folder is missing or its parts disagree
    """

    def __init__(self, folder: Path, device: torch.device, inductive: bool = False) -> None:
        self.folder = folder
        self.device = device
        self.inductive = inductive
        self.card = read_card(folder)
        if not (folder / "text" / META).is_file():
            raise DataError(
                f"{folder}: expected encoded texts, found none; "
                f"run `dance-flwr encode {folder}` on this machine"
            )
        meta = read_meta(folder / "text")
        self.text_dim, self.encoder_sha256 = int(meta["dim"]), str(meta["weights_sha256"])
        if ids_digest(self.ids()) != self.card.ids_sha256:
            raise DataError(
                f"{folder}: expected the node ids of {CARD}, found others; "
                "prepare the partition again"
            )
        listed = len(self._array("indptr")) - 1
        if listed != self.card.num_nodes:
            raise DataError(
                f"{folder}: expected neighbour lists of {self.card.num_nodes} nodes, "
                f"found {listed}; prepare the partition again"
            )

    def _array(self, name: str) -> NDArray[Any]:
        return np.load(self.folder / "arrays" / f"{name}.npy", mmap_mode="r")  # type: ignore[no-any-return]

    @property
    def num_nodes(self) -> int:
        """Number of local nodes |V^(m)|."""
        return self.card.num_nodes

    @cached_property
    def labels(self) -> Tensor:
        """[n] int64 labels of all splits in the global schema; -1 if unknown."""
        return torch.tensor(self._array("labels"), device=self.device)

    @cached_property
    def split(self) -> Tensor:
        """[n] uint8, the codes of `dance_flwr.data.graphs.graph`."""
        return torch.tensor(self._array("split"), device=self.device)

    @cached_property
    def train_labels(self) -> Tensor:
        """[n] int64 labels of training nodes, -1 elsewhere: the only labels for training."""
        return torch.where(self.split == TRAIN, self.labels, -1)

    @cached_property
    def label_table(self) -> Tensor:
        """[n, C] float32, one-hot training labels; zero rows for all other nodes."""
        known = self.train_labels >= 0
        table = torch.zeros(self.num_nodes, len(self.card.class_names), device=self.device)
        table[known, self.train_labels[known]] = 1
        return table

    @cached_property
    def bank(self) -> BankSlice:
        """Chunk embeddings, spans and token counts, memory-mapped."""
        return load_slice(self.folder / "text")

    @cached_property
    def table(self) -> TextTable:
        """The text bank as tensors, with t_u pooled once."""
        slice_ = self.bank
        half = slice_.embeddings
        small = half.size * 4 <= _MOST_BYTES_IN_MEMORY or self.device.type != "cpu"
        chunks = torch.tensor(half, dtype=torch.float32) if small else _read_only_tensor(half)
        ptr = torch.tensor(slice_.ptr, device=self.device)
        return TextTable.from_chunks(chunks.to(self.device), ptr)

    @cached_property
    def chunk_sha256(self) -> NDArray[np.uint8]:
        """[R, 32] uint8, sha256 of every chunk's UTF-8 text, memory-mapped."""
        return self._array("chunk_sha256")

    @cached_property
    def graph(self) -> LocalGraph:
        """The whole local graph, on which predictions are made."""
        everything = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        return LocalGraph(
            np.asarray(self._array("indptr")), np.asarray(self._array("indices")), everything
        )

    @cached_property
    def training_graph(self) -> LocalGraph:
        """Graph for training: in inductive mode without test nodes and their edges, else whole."""
        if not self.inductive:
            return self.graph
        visible = self.split != TEST
        mask = diags(visible.cpu().numpy().astype(np.uint8), dtype=np.uint8)
        adjacency = csr_matrix(
            (
                np.ones(len(self._array("indices")), np.uint8),
                self._array("indices"),
                self._array("indptr"),
            )
        )
        reduced = (mask @ adjacency @ mask).tocsr()
        reduced.eliminate_zeros()
        reduced.sort_indices()
        indptr, indices = reduced.indptr.astype(np.int64), reduced.indices.astype(np.int64)
        return LocalGraph(indptr, indices, visible)

    def ids(self) -> list[str]:
        """Return the ids of all local nodes, read from disk."""
        return read_ids(self.folder)

    def texts(self) -> list[str]:
        """Return the texts of all local nodes, read from disk; rounds do not need them."""
        return read_texts(self.folder)


def run_folder(client_folder: Path, run: str) -> Path:
    """Return the folder of a run inside a client's folder, without creating it."""
    return client_folder / "runs" / run


def read_ids(folder: Path) -> list[str]:
    """Return the ids of a client's nodes.

    Raises
    ------
    DataError : the node table is missing or damaged
    """
    return _column(folder, "id")


def read_texts(folder: Path) -> list[str]:
    """Return the texts of a client's nodes.

    Raises
    ------
    DataError : the node table is missing or damaged
    """
    return _column(folder, "text")


def _column(folder: Path, name: str) -> list[str]:
    import pyarrow.parquet as pq

    path = folder / "nodes.parquet"
    try:
        return pq.read_table(path, columns=[name])[name].to_pylist()  # type: ignore[no-any-return]
    except (OSError, KeyError) as error:
        raise DataError(
            f"{path}: expected column {name!r}, found {error}; prepare the partition again"
        ) from None


def read_card(folder: Path) -> SiteCard:
    """Read `client.json`.

    Raises
    ------
    DataError : there is no such folder, or the file is damaged
    """
    path = folder / CARD
    if not path.is_file():
        raise DataError(
            f"expected a client folder with {CARD}, found none at {folder}; "
            "prepare the partition first"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw["class_names"] = tuple(raw["class_names"])
        return SiteCard(**raw)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path}: expected the card of a client, found {error}; prepare the partition again"
        ) from None


def chunk_digests(texts: Sequence[str], part: BankSlice) -> NDArray[np.uint8]:
    """Return the sha256 of every chunk's UTF-8 text, [R, 32] uint8."""
    owner = np.repeat(np.arange(len(texts)), np.diff(part.ptr)).tolist()
    digests = [
        hashlib.sha256(texts[node][start:end].encode()).digest()
        for node, (start, end) in zip(owner, part.spans.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def _read_only_tensor(array: NDArray[Any]) -> Tensor:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
