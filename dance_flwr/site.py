"""`Site`: all that one client owns. It opens its own folder and nothing else."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.evidence import TextTable
from dance_flwr.dance.hops import Hops
from dance_flwr.dance.propagation import operator
from dance_flwr.errors import DataError
from dance_flwr.graph import TRAIN, ids_digest
from dance_flwr.text.bank import BankSlice, load_slice

# Above this many bytes as float32, chunk embeddings stay memory-mapped in float16.
_MOST_BYTES_IN_MEMORY = 512 * 2**20

CARD = "client.json"
ARRAYS = ("indptr", "indices", "labels", "split")


@dataclass(frozen=True)
class SiteCard:
    """What `client.json` says: whose folder this is and what a model for it must look like."""

    client: int
    clients: int
    num_nodes: int
    class_names: tuple[str, ...]
    ids_sha256: str
    partition_sha256: str
    encoder_sha256: str
    text_dim: int


class Site:
    """One client's graph, text bank and labels on one device, loaded lazily and once per process.

    Parameters
    ----------
    folder : the client's folder (`client-K/`)
    device : where tensors live

    Raises
    ------
    DataError : the folder is missing or its parts disagree
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.folder = folder
        self.device = device
        self.card = read_card(folder)
        if ids_digest(self.ids()) != self.card.ids_sha256:
            raise DataError(f"{folder}: expected the node ids of {CARD}, found others; prepare the partition again")
        listed = len(self._array("indptr")) - 1
        if listed != self.card.num_nodes:
            raise DataError(
                f"{folder}: expected neighbour lists of {self.card.num_nodes} nodes, found {listed}; "
                "prepare the partition again"
            )

    def _array(self, name: str) -> NDArray[Any]:
        return np.load(self.folder / "arrays" / f"{name}.npy", mmap_mode="r")  # type: ignore[no-any-return]

    @property
    def num_nodes(self) -> int:
        """Number of local nodes |V^(m)|."""
        return self.card.num_nodes

    @cached_property
    def labels(self) -> Tensor:
        """[n] int64 labels in the global schema, -1 where unknown; every split."""
        return torch.tensor(self._array("labels"), device=self.device)

    @cached_property
    def split(self) -> Tensor:
        """[n] uint8, the codes of `dance_flwr.graph`."""
        return torch.tensor(self._array("split"), device=self.device)

    @cached_property
    def train_labels(self) -> Tensor:
        """[n] int64 labels of training nodes, -1 elsewhere: all the labels that training may see."""
        return torch.where(self.split == TRAIN, self.labels, -1)

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
        """[R, 32] sha256 of every chunk's utf-8 text, memory-mapped."""
        return self._array("chunk_sha256")

    @cached_property
    def hops(self) -> Hops:
        """1-hop and 2-hop neighbourhoods of the original local graph."""
        return Hops(np.asarray(self._array("indptr")), np.asarray(self._array("indices")), self.device)

    @cached_property
    def _operators(self) -> dict[str, Tensor]:
        return {}

    def operator(self, kind: str) -> Tensor:
        """Return the propagation operator of the original local graph, made once per kind."""
        if kind not in self._operators:
            indptr = torch.tensor(self._array("indptr"), device=self.device)
            cols = torch.tensor(self._array("indices"), device=self.device)
            rows = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.device), indptr.diff())
            ones = torch.ones(cols.numel(), device=self.device)
            self._operators[kind] = operator(kind, rows, cols, ones, self.num_nodes)
        return self._operators[kind]

    def ids(self) -> list[str]:
        """Return the ids of all local nodes, read from disk."""
        return self._column("id")

    def texts(self) -> list[str]:
        """Return the texts of all local nodes, read from disk on each call; never needed in a round."""
        return self._column("text")

    def _column(self, name: str) -> list[str]:
        import pyarrow.parquet as pq

        path = self.folder / "nodes.parquet"
        try:
            return pq.read_table(path, columns=[name])[name].to_pylist()  # type: ignore[no-any-return]
        except (OSError, KeyError) as error:
            raise DataError(f"{path}: expected column {name!r}, found {error}; prepare the partition again") from None


def read_card(folder: Path) -> SiteCard:
    """Read `client.json`.

    Raises
    ------
    DataError : there is no such folder, or the file is damaged
    """
    path = folder / CARD
    if not path.is_file():
        raise DataError(f"expected a client folder with {CARD}, found none at {folder}; prepare the partition first")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw["class_names"] = tuple(raw["class_names"])
        return SiteCard(**raw)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: expected the card of a client, found {error}; prepare the partition again") from None


def chunk_digests(texts: list[str], part: BankSlice) -> NDArray[np.uint8]:
    """Return sha256 of every chunk's utf-8 text, [R, 32] uint8."""
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
