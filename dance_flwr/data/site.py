"""`Site`: one client's local data. It opens the client's own folder and nothing else."""

import hashlib
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from torch import Tensor

from dance_flwr.data import derived
from dance_flwr.data.graphs.graph import TEST, TRAIN, ids_digest
from dance_flwr.data.local_graph import LocalGraph
from dance_flwr.data.text.bank import META, BankSlice, load_slice, read_meta
from dance_flwr.data.text.bank_slice import SLICE_FILES
from dance_flwr.data.text.table import TextTable
from dance_flwr.errors import DataError
from dance_flwr.nn.backbone import Backbone
from dance_flwr.nn.ragged import Ragged

Found = TypeVar("Found")

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
        self._inputs: dict[str, Tensor] = {}
        self._remembered: dict[str, tuple[Hashable, Any]] = {}
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
        """The text bank as tensors, with t_u pooled once; memory-mapped if large."""
        slice_ = self.bank
        half, ptr = slice_.embeddings, torch.tensor(slice_.ptr, device=self.device)
        if derived.fits(len(half), self.text_dim, self.device):
            chunks = torch.tensor(half, dtype=torch.float32, device=self.device)
            return TextTable.from_chunks(chunks, ptr)
        chunks = derived.mapped(half)
        chunks_of = Ragged(ptr, torch.arange(len(half), device=self.device))
        shape = (self.num_nodes, self.text_dim)
        pooled = self._kept(
            "texts", shape, lambda out: derived.pooled_texts(chunks, chunks_of, out)
        )
        return TextTable(chunks, chunks_of, pooled)

    @cached_property
    def features(self) -> Tensor:
        """[n, d] float32, t_u of every node in memory, for methods that read the whole graph."""
        return self.table.nodes.float()

    def inputs(self, graph: LocalGraph, backbone: Backbone) -> Tensor:
        """Return `Backbone.inputs` of every node, [n, i]: computed once, memory-mapped if large.

        Parameters
        ----------
        graph : of this client; backbone : of the model, of which only the kind matters
        """
        kind = f"{type(backbone).__name__.lower()}-{graph.name}"
        if kind not in self._inputs:
            texts = self.table.nodes
            width = backbone.inputs(texts[:1].float(), _one_node(texts.device)).size(1)
            if derived.fits(self.num_nodes, width, self.device):
                self._inputs[kind] = derived.resident_inputs(backbone, texts, graph)
            else:
                self._inputs[kind] = self._kept(
                    f"inputs-{kind}",
                    (self.num_nodes, width),
                    lambda out: derived.backbone_inputs(backbone, texts, graph, out),
                )
        return self._inputs[kind]

    def _kept(
        self, name: str, shape: tuple[int, int], fill: Callable[[NDArray[np.float16]], None]
    ) -> Tensor:
        folder = self.folder / "text"
        key = (folder / META).read_text("utf-8") + repr(
            [(folder / file).stat().st_mtime_ns for file in SLICE_FILES]
        )
        return derived.kept(self.folder / "derived", name, key, shape, fill)

    @cached_property
    def chunk_sha256(self) -> NDArray[np.uint8]:
        """[R, 32] uint8, sha256 of every chunk's UTF-8 text, memory-mapped."""
        return self._array("chunk_sha256")

    @cached_property
    def graph(self) -> LocalGraph:
        """The whole local graph, on which predictions are made."""
        everything = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        ptr, index = (derived.mapped(self._array(name)) for name in ("indptr", "indices"))
        return LocalGraph(Ragged(ptr.to(self.device), index.to(self.device)), everything)

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
        ptr, index = (
            torch.as_tensor(part.astype(np.int64), device=self.device)
            for part in (reduced.indptr, reduced.indices)
        )
        return LocalGraph(Ragged(ptr, index), visible, "training")

    def remember(self, name: str, key: Hashable, compute: Callable[[], Found]) -> Found:
        """Return what `compute` gave for this name and key; only the last key is kept.

        For what can be computed again from the client's folder: nothing is lost with the process.
        """
        if name not in self._remembered or self._remembered[name][0] != key:
            self._remembered[name] = key, compute()
        return self._remembered[name][1]  # type: ignore[no-any-return]

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


def _one_node(device: torch.device) -> Tensor:
    """Return the operator of a single node without edges."""
    return torch.zeros(1, 1, device=device)
