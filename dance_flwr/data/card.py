"""The card of a client's folder, its node table, and the digests of its chunks."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.errors import DataError, UserError, reason_of

ARRAYS = ("indptr", "indices", "labels", "split")  # of a client's graph, in `arrays/`
CARD = "client.json"
# Where texts of edges lie in the nodes' texts, and the weight of each entry of `indices` in
# `arrays/`: only of graphs that have some, and only where the card lists the file.
EDGE_TEXTS, WEIGHTS = "edge_texts.parquet", "weights"
NODES = "nodes.parquet"
FOLDER_FORMAT = 2  # of a client's folder; cards of 1 had no digests
# A server names the run, and its name becomes a folder at the client.
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class ClientCard:
    """Content of `client.json`: which client this is, and the classes that its model needs.

    Attributes
    ----------
    files : sha256 of every file of the client's data, by its path in the folder
    salt : 64 random hex digits, so that a hash of the card tells nothing of what it holds
    """

    client: int
    clients: int
    num_nodes: int
    class_names: tuple[str, ...]
    ids_sha256: str
    partition_sha256: str
    files: Mapping[str, str] = field(default_factory=dict)
    salt: str = ""


def run_folder(client_folder: Path, run: str) -> Path:
    """Return the folder of a run inside a client's folder, without creating it.

    Raises
    ------
    UserError : `run`, which a server chooses, is no plain name, or the folder is a link that leads
        out of the client's
    """
    check_run(run)
    return inside(client_folder / "runs", run)


def check_run(run: str) -> None:
    """Refuse a name of a run that could be a path."""
    if not _RUN.fullmatch(run):
        raise UserError(
            f"run: expected a name of up to 128 letters, digits, '.', '_' and '-' that begins with "
            f"a letter or digit, found {run[:150]!r}; this client does not take part"
        )


def inside(parent: Path, name: str) -> Path:
    """Return `parent / name`, a plain name; a link that leads out of `parent` is refused."""
    folder = parent / name
    # Both paths go through the links above; only the last part can lead elsewhere.
    if folder.is_symlink() and not folder.resolve().is_relative_to(parent.resolve()):
        raise UserError(
            f"{folder}: expected a folder below {parent}, found a link to {folder.resolve()}; "
            "remove the link"
        )
    return folder


def read_ids(folder: Path) -> list[str]:
    """Return the ids of a client's nodes."""
    return _column(folder, "id")


def read_texts(folder: Path) -> list[str]:
    """Return the texts of a client's nodes."""
    return _column(folder, "text")


def _column(folder: Path, name: str) -> list[str]:
    # Whoever reads a card alone does not wait for pyarrow.
    from dance_flwr.data.graphs.tables import parquet_table

    try:
        column: list[str] = parquet_table(folder / NODES).read([name])[name].to_pylist()
        return column
    except DataError as error:
        raise DataError(f"{error}, or prepare the partition again") from None


def read_card(folder: Path) -> ClientCard:
    """Read `client.json`."""
    path = folder / CARD
    if not path.is_file():
        raise DataError(
            f"expected a client folder with {CARD}, found none at {folder}; "
            "prepare the partition first"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw["class_names"] = tuple(raw["class_names"])
        card = ClientCard(**raw)
        if not (card.salt and card.files):
            raise ValueError("no digests of its files; an earlier version wrote it")
        return card
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path}: expected the card of a client, found {reason_of(error)}; prepare the "
            "partition again"
        ) from None


def chunk_digests(texts: Sequence[str], part: BankSlice) -> NDArray[np.uint8]:
    """Return the sha256 of every chunk's UTF-8 text, [R, 32] uint8."""
    owner = np.repeat(np.arange(len(texts)), np.diff(part.ptr)).tolist()
    digests = [
        hashlib.sha256(texts[node][start:end].encode()).digest()
        for node, (start, end) in zip(owner, part.spans.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
