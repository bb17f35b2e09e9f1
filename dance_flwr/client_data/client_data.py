"""`ClientData`: one client's local data. It opens the client's own folder and nothing else."""

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data import inputs
from dance_flwr.client_data.agreement import agreeing_edges, agreeing_texts, agreeing_weights
from dance_flwr.client_data.inputs import StoredArrays, mapped, network_inputs
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.reading_probe import counted_votes, is_settled, probe_nodes
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import AGREEMENT, ReadingConfig, reading_of
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import ARRAYS, CARD, WEIGHTS, read_card, read_ids, read_texts
from dance_flwr.data.digests import check_files
from dance_flwr.data.graphs.codes import TEST, TRAIN, ids_digest
from dance_flwr.data.text.bank_slice import META, BankSlice, load_slice, read_meta
from dance_flwr.disk import mapped_array
from dance_flwr.errors import DataError
from dance_flwr.nn.backbone import Backbone
from dance_flwr.nn.moving import HOST
from dance_flwr.nn.ragged import Ragged

if TYPE_CHECKING:
    from dance_flwr.client_data.edge_weights import EdgeGates
    from dance_flwr.data.edge_spans import EdgeSpans


Value = TypeVar("Value")

_PLAIN = ReadingConfig()


class ClientData:
    """One client's graph, text bank and labels on one device, loaded lazily and once per process.

    Parameters
    ----------
    folder : the client's folder (`client-K/`)
    device : device of the tensors
    inductive : whether test nodes and their edges are absent in training; they are always present
        at evaluation
    reading : how texts are pooled and edges weighed; "auto" = by the paper's rules; under "probe"
        the client can vote (`reading_votes`), and nothing that depends on the choice can be read
    derived_folder : stores arrays that follow from the data; None = `derived/` in `folder`

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
        self.folder, self.device, self.inductive = folder, device, inductive
        self._stored = StoredArrays(folder, derived_folder or folder / "derived")
        self._reading = reading
        self._inputs: dict[str, Tensor] = {}
        self._cached: dict[str, tuple[Hashable, Any]] = {}
        self.card = read_card(folder)
        if not (folder / "text" / META).is_file():
            raise DataError(
                f"{folder}: expected encoded texts, found none; copy the client's folder again, or "
                "prepare it again"
            )
        meta = read_meta(folder / "text")
        self.text_dim, self.encoder_sha256 = int(meta["dim"]), str(meta["weights_sha256"])
        # Parts of a folder are written by several commands, and may be of different data.
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

    @classmethod
    def of(cls, folder: Path, config: RunConfig, derived_folder: Path | None = None) -> Self:
        """Check every file of a client's folder, and open it on the CPU as a run reads it.

        Raises
        ------
        DataError : a file is not the one that the client's card describes
        """
        check_files(folder)
        inductive = config.split_mode == "inductive"
        return cls(folder, HOST, inductive, reading_of(config), derived_folder)

    def on_host(self) -> "ClientData":
        """Return the same data on the host, opened once."""
        if self.device == HOST:
            return self
        of_folder = self.folder, HOST, self.inductive, self._reading, self._stored.folder
        return self.cached("on the host", "", lambda: ClientData(*of_folder))

    @property
    def reading(self) -> ReadingConfig:
        """How texts are pooled and edges weighed; a `ValueError` before the federation chose."""
        if not is_settled(self._reading):
            raise ValueError("expected a reading that the federation has chosen, found 'probe'")
        return self._reading

    def reading_votes(self) -> list[int]:
        """Return `counted_votes` of the readings that are left open; empty if none is.

        A run with the same data and settings finds them in a file.
        """
        open_reading = self._reading
        if is_settled(open_reading):
            return []
        names = (*ARRAYS, *([WEIGHTS] if self._weighted else []))
        arrays = [self.folder / "arrays" / f"{name}.npy" for name in names]
        key = repr([open_reading, self.inductive, [path.stat().st_mtime_ns for path in arrays]])
        # All that the votes depend on is in the name of their file.
        name = hashlib.sha256((self._stored.text_version() + key).encode()).hexdigest()[:12]
        nodes = probe_nodes(self.labels, self.split, len(self.card.class_names), self.card.client)

        def read(reading: ReadingConfig) -> tuple[Tensor, LocalGraph]:
            data = ClientData(
                self.folder, self.device, self.inductive, reading, self._stored.folder
            )
            return data.table.nodes, data.training_graph

        return counted_votes(open_reading, nodes, read, self._stored.folder / f"votes-{name}.json")

    def _array(self, name: str) -> NDArray[Any]:
        # Mapped (decision 16): a round reads the rows that it needs.
        return mapped_array(self.folder / "arrays" / f"{name}.npy")

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
        # One more of each class, so that an absent class has a finite logarithm.
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
        if inputs.fits(len(half), self.text_dim, self.device):
            chunks = torch.tensor(half, dtype=torch.float32, device=self.device)
            table = TextTable.from_chunks(chunks, ptr)
        else:
            chunks_of = Ragged(ptr, torch.arange(len(half), device=self.device))
            # Why mapped (decision 16): chunks are read where a node of the core needs them.
            chunks, shape = inputs.mapped(half), (chunks_of.num_rows, self.text_dim)
            pooled = self._stored.array(
                "texts", shape, lambda out: inputs.pooled_texts(chunks, chunks_of, out)
            )
            table = TextTable(chunks, chunks_of, pooled)
        return self._agreed(table) if self.reading.text_pooling == AGREEMENT else table

    def _agreed(self, table: TextTable) -> TextTable:
        """Return the table with t_u pooled by agreement with the neighbours (`agreeing_texts`)."""
        height, width = table.nodes.shape
        # Arrays in memory are float32, those on disk float16.
        resident = table.nodes.dtype == torch.float32

        def new() -> Tensor:
            if resident:
                return torch.empty_like(table.nodes)
            # A pass writes to a file without a name; only the last one is stored.
            return inputs.scratch(self.folder, (height, width))

        read = (table, self.compared_rows, self.reading, new)
        # Only evidence that records the weights asks for them.
        weighed = cache(lambda: agreeing_weights(*read))
        if resident:
            return replace(table, nodes=agreeing_texts(*read), weighed=weighed)
        name = self._variant(self.reading.text_temperature, self.reading.pooled_chunks)
        texts = self._stored.array(
            f"texts-{name}", (height, width), lambda out: np.copyto(out, agreeing_texts(*read))
        )
        return replace(table, nodes=texts, weighed=weighed)

    @property
    def compared_rows(self) -> Ragged:
        """The neighbours whose texts decide how chunks are pooled, under `text-pooling` agreement.

        In inductive mode texts of training nodes do not depend on test nodes.
        """
        rows = self._rows
        if not self.inductive:
            return rows
        # Why one way only (decision 18): a test node is compared with all of its neighbours, a
        # training node with training nodes.
        return rows.keep((self.split == TEST)[rows.rows()] | (self.split != TEST)[rows.index])

    def _variant(self, *keys: object) -> str:
        """Return a name for these parts of `reading`: arrays of several are stored side by side."""
        # `inductive` too, since it decides which neighbours are compared.
        return hashlib.sha256(repr((*keys, self.inductive)).encode()).hexdigest()[:8]

    @cached_property
    def features(self) -> Tensor:
        """[n, d] float32, t_u of every node in memory, for methods that read the whole graph."""
        return self.table.nodes.float()

    def inputs(self, graph: LocalGraph, backbone: Backbone) -> Tensor:
        """Return `Backbone.inputs` of every node, [n, i]: computed once, memory-mapped if large."""
        # Why the kind alone: `Backbone.inputs` has no parameters.
        kind = f"{type(backbone).__name__.lower()}-{graph.name}"
        if AGREEMENT in (self.reading.text_pooling, self.reading.edge_gates):
            kind += f"-{self._variant(self.reading)}"
        if kind not in self._inputs:
            self._inputs[kind] = network_inputs(
                backbone, self.table.nodes, graph, self._stored, f"inputs-{kind}"
            )
        return self._inputs[kind]

    @cached_property
    def chunk_sha256(self) -> NDArray[np.uint8]:
        """[R, 32] uint8, sha256 of every chunk's UTF-8 text, memory-mapped."""
        return self._array("chunk_sha256")

    @cached_property
    def _rows(self) -> Ragged:
        ptr, index = (mapped(self._array(name)) for name in ("indptr", "indices"))
        return Ragged(ptr.to(self.device), index.to(self.device))

    @cached_property
    def graph(self) -> LocalGraph:
        """The whole local graph, on which predictions are made."""
        # Whole even in inductive mode: test nodes are absent in training alone.
        everything = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        return LocalGraph(self._rows, everything, gates=self.edge_gates(self._rows))

    @cached_property
    def training_graph(self) -> LocalGraph:
        """Graph for training: in inductive mode without test nodes and their edges, else whole."""
        if not self.inductive:
            return self.graph
        visible = self.split != TEST
        rows = self._rows.keep(visible[self._rows.rows()] & visible[self._rows.index])
        return LocalGraph(rows, visible, "training", self.edge_gates(rows))

    @property
    def _weighted(self) -> bool:
        # Why by the card (decision 27): a file that is added to a folder changes nothing.
        return f"arrays/{WEIGHTS}.npy" in self.card.files

    @cached_property
    def weight_gates(self) -> "EdgeGates | None":
        """The weights that come with the data, in [0, 1]; None where all edges count the same.

        One scale for all of the client's edges, also in inductive mode: an edge has the same weight
        in training and in prediction.
        """
        if not self._weighted:
            return None
        from dance_flwr.client_data.edge_weights import EdgeGates  # few graphs have weights

        weights = torch.tensor(self._array(WEIGHTS), device=self.device)
        return EdgeGates.of(self._rows, weights)

    def edge_gates(self, rows: Ragged) -> Tensor | None:
        """Return the weights of edges between the client's nodes; None = all 1.

        The product of the weights that come with the data and of those of `reading`.
        """
        weights = None if self.weight_gates is None else self.weight_gates.at(rows)
        if self.reading.edge_gates != AGREEMENT:
            return weights
        # Why the condensed texts (decision 18): where texts are foreign, plain ones disagree across
        # real edges too.
        agreeing = agreeing_edges(self.table.nodes, rows, self.reading.edge_temperature)
        return agreeing if weights is None else agreeing * weights

    def cached(self, name: str, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of `compute` for this name and key; a new key replaces the old one.

        For what can be computed again from the client's folder: nothing is lost with the process.
        """
        # One value per name, so that memory does not grow with the number of keys.
        if name not in self._cached or self._cached[name][0] != key:
            self._cached[name] = key, compute()
        return self._cached[name][1]  # type: ignore[no-any-return]

    def ids(self) -> list[str]:
        """Return the ids of all local nodes, read from disk."""
        return read_ids(self.folder)

    def texts(self) -> list[str]:
        """Return the texts of record of all nodes, each with those of its edges; read from disk."""
        return read_texts(self.folder)

    @cached_property
    def edge_spans(self) -> "EdgeSpans | None":
        """Where texts of edges lie in `texts()`; None if no edge has one."""
        from dance_flwr.data.edge_spans import edge_spans  # training reads none

        return edge_spans(self.folder, self.card)
