"""`ClientData`: one client's local data. It opens the client's own folder and nothing else."""

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data import inputs as derived
from dance_flwr.client_data.agreement import agreeing_edges, agreeing_texts, agreeing_weights
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.reading_probe import probed
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import AGREEMENT, PROBE, ReadingConfig
from dance_flwr.data.card import CARD, read_card, read_ids, read_texts
from dance_flwr.data.graphs.graph import TEST, TRAIN, ids_digest
from dance_flwr.data.text.bank import META, BankSlice, load_slice, read_meta
from dance_flwr.data.text.bank_slice import SLICE_FILES
from dance_flwr.errors import DataError
from dance_flwr.nn.backbone import Backbone
from dance_flwr.nn.ragged import Ragged

Found = TypeVar("Found")

ARRAYS = ("indptr", "indices", "labels", "split")
_PLAIN = ReadingConfig()


class ClientData:
    """One client's graph, text bank and labels on one device, loaded lazily and once per process.

    Parameters
    ----------
    folder : the client's folder (`client-K/`)
    device : device of the tensors
    inductive : whether test nodes and their edges are absent in training; they are always present
        at evaluation
    reading : how texts are pooled and edges weighed; "auto" = by the paper's rules, "probe" =
        whichever the client's own validation nodes favour
    derived_folder : what follows from the data is kept there; None = `derived/` in `folder`

    Raises
    ------
    DataError : the folder is missing or its parts disagree
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        inductive: bool = False,
        reading: ReadingConfig = _PLAIN,
        derived_folder: Path | None = None,
    ) -> None:
        self.folder = folder
        self._derived_folder = derived_folder or folder / "derived"
        self.device = device
        self.inductive = inductive
        self._asked = reading
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

    @cached_property
    def reading(self) -> ReadingConfig:
        """How texts are pooled and edges weighed, "probe" resolved."""
        asked = self._asked
        if PROBE not in (asked.text_pooling, asked.edge_gates):
            return asked
        arrays = [self.folder / "arrays" / f"{name}.npy" for name in ARRAYS]
        key = repr([asked, self.inductive, [path.stat().st_mtime_ns for path in arrays]])
        name = hashlib.sha256((self._text_version() + key).encode()).hexdigest()[:12]
        return probed(
            asked,
            lambda reading: ClientData(
                self.folder, self.device, self.inductive, reading, self._derived_folder
            ),
            self._derived_folder / f"reading-{name}.json",
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
    def log_class_shares(self) -> Tensor:
        """[C] float32, log((n_c + 1) / (n + C)) over the training labels."""
        labels = self.train_labels[self.train_labels >= 0]
        counts = torch.bincount(labels, minlength=len(self.card.class_names)).float() + 1
        return torch.log(counts / counts.sum())

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
        half, ptr = self.bank.embeddings, torch.tensor(self.bank.ptr, device=self.device)
        if derived.fits(len(half), self.text_dim, self.device):
            chunks = torch.tensor(half, dtype=torch.float32, device=self.device)
            return self._condensed(TextTable.from_chunks(chunks, ptr))
        chunks = derived.mapped(half)
        chunks_of = Ragged(ptr, torch.arange(len(half), device=self.device))
        shape = (self.num_nodes, self.text_dim)
        pooled = self._kept(
            "texts", shape, lambda out: derived.pooled_texts(chunks, chunks_of, out)
        )
        return self._condensed(TextTable(chunks, chunks_of, pooled))

    def _condensed(self, table: TextTable) -> TextTable:
        """Return the table with t_u pooled as `reading` says."""
        if self.reading.text_pooling != AGREEMENT:
            return table
        read = (table.chunks, table.chunks_of, self.compared_rows, table.nodes, self.reading)
        shape, resident = (self.num_nodes, self.text_dim), table.nodes.dtype == torch.float32

        def new() -> Tensor:
            if resident:
                return torch.empty_like(table.nodes)
            return derived.scratch(self.folder, shape)

        def weigh() -> Tensor:  # only evidence that records these weights asks for them
            return agreeing_weights(*read, new)

        if resident:
            return replace(table, nodes=agreeing_texts(*read, new), weighed=cache(weigh))
        texts = self._kept(
            f"texts-{self._variant(self.reading.text_temperature, self.reading.pooled_chunks)}",
            shape,
            lambda out: np.copyto(out, agreeing_texts(*read, new)),
        )
        return replace(table, nodes=texts, weighed=cache(weigh))

    @property
    def compared_rows(self) -> Ragged:
        """The neighbours whose texts decide how chunks are pooled, under `text-pooling` agreement.

        In inductive mode texts of training nodes do not depend on test nodes.
        """
        rows = self._rows
        if not self.inductive:
            return rows
        return rows.keep((self.split == TEST)[rows.rows()] | (self.split != TEST)[rows.index])

    def _variant(self, *keys: object) -> str:
        """Return a name for these parts of `reading`: arrays of several are kept side by side."""
        return hashlib.sha256(repr((*keys, self.inductive)).encode()).hexdigest()[:8]

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
        if AGREEMENT in (self.reading.text_pooling, self.reading.edge_gates):
            kind += f"-{self._variant(self.reading)}"
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
        return derived.kept(self._derived_folder, name, self._text_version(), shape, fill)

    def _text_version(self) -> str:
        """What changes when the client's texts are encoded again."""
        folder = self.folder / "text"
        times = [(folder / file).stat().st_mtime_ns for file in SLICE_FILES]
        return (folder / META).read_text("utf-8") + repr(times)

    @cached_property
    def chunk_sha256(self) -> NDArray[np.uint8]:
        """[R, 32] uint8, sha256 of every chunk's UTF-8 text, memory-mapped."""
        return self._array("chunk_sha256")

    @cached_property
    def _rows(self) -> Ragged:
        """Every node's neighbours, memory-mapped."""
        ptr, index = (derived.mapped(self._array(name)) for name in ("indptr", "indices"))
        return Ragged(ptr.to(self.device), index.to(self.device))

    @cached_property
    def graph(self) -> LocalGraph:
        """The whole local graph, on which predictions are made."""
        everything = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        return LocalGraph(self._rows, everything, gates=self._gates(self._rows))

    @cached_property
    def training_graph(self) -> LocalGraph:
        """Graph for training: in inductive mode without test nodes and their edges, else whole."""
        if not self.inductive:
            return self.graph
        visible = self.split != TEST
        rows = self._rows.keep(visible[self._rows.rows()] & visible[self._rows.index])
        return LocalGraph(rows, visible, "training", self._gates(rows))

    def _gates(self, rows: Ragged) -> Tensor | None:
        """Return the weights of these edges that `reading` asks for; None = all 1."""
        if self.reading.edge_gates != AGREEMENT:
            return None
        return agreeing_edges(self.table.nodes, rows, self.reading.edge_temperature)

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


def _one_node(device: torch.device) -> Tensor:
    """Return the operator of a single node without edges."""
    return torch.zeros(1, 1, device=device)
