"""The folder of one client, its privacy boundary: all that a SuperNode needs, written once and
checked at load.

`client.json` (the card), `nodes.parquet`, `edges.parquet`, `arrays/` (memory-mapped), `text/` (the
client's slice of the text bank, absent until its texts are encoded) and `runs/` (state and evidence
of each run).
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.config.paths import MANIFEST
from dance_flwr.data.folder import write_folder
from dance_flwr.data.graph import TextGraph, ids_digest
from dance_flwr.data.partition import Partition, client_nodes, read_manifest, write_manifest
from dance_flwr.data.site import (
    ARRAYS,
    CARD,
    SiteCard,
    chunk_digests,
    read_card,
    read_ids,
    read_texts,
)
from dance_flwr.data.text.bank import BankStats, TextBank, save_slice
from dance_flwr.errors import DataError

Say = Callable[[str], None]


def write_partition(
    graph: TextGraph,
    partition: Partition,
    content: dict[str, Any],
    folder: Path,
    bank: TextBank | None,
    say: Say = lambda line: None,
) -> BankStats | None:
    """Write the manifest and one folder per client; `folder` appears whole or not at all.

    Parameters
    ----------
    content : the manifest of this partition
    bank : encodes the texts and gives each client its slice; None leaves that to `encode_client` on
        each machine
    say : receives one line per step

    Returns
    -------
    what encoding took, None without a bank
    """
    for stale in folder.parent.glob(f".{folder.name}-*"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
    stats = _encode(graph.texts, bank, say) if bank else None
    whole = replace(graph, split=partition.split)
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for number in range(partition.spec.clients):
            local = whole.subgraph(client_nodes(partition, number), f"{graph.name}-client-{number}")
            client = building / f"client-{number}"
            _write_client(local, number, content, client)
            if bank:
                _write_text(local.texts, bank, client)
        write_manifest(building / MANIFEST, content)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return stats


def encode_client(folder: Path, bank: TextBank, say: Say = lambda line: None) -> BankStats:
    """Encode the texts of one client folder on this machine, where that was left out.

    Raises
    ------
    DataError : this is no client folder, or its ids are not those of its card
    """
    card, texts = read_card(folder), read_texts(folder)
    if ids_digest(read_ids(folder)) != card.ids_sha256:
        raise DataError(
            f"{folder}: expected the node ids of {CARD}, found others; copy the client's folder again"
        )
    stats = _encode(texts, bank, say)
    _write_text(texts, bank, folder)
    return stats


def check(folder: Path) -> dict[str, Any]:
    """Return the manifest of a partition after checking it and every client's card against it.

    Raises
    ------
    DataError : the manifest was altered, or a client folder belongs to another partition or holds
        other nodes
    """
    content = read_manifest(folder / MANIFEST)
    for number, client in enumerate(content["clients"]):
        where = folder / f"client-{number}"
        card = read_card(where)
        expected = (number, content["sha256"], client["ids_sha256"])
        found = (card.client, card.partition_sha256, card.ids_sha256)
        if found != expected:
            raise DataError(
                f"{where}: expected client, partition and ids {expected}, found {found}; "
                f"delete {folder} to have it made again"
            )
    return content


def _encode(texts: Sequence[str], bank: TextBank, say: Say) -> BankStats:
    stats = bank.ensure(texts)
    say(
        f"text bank   {stats.chunks_encoded:,} chunks of {stats.texts_encoded:,} texts encoded in "
        f"{stats.seconds:.0f} s, {stats.texts_total - stats.texts_encoded:,} texts found"
    )
    return stats


def _write_client(local: TextGraph, number: int, content: dict[str, Any], folder: Path) -> None:
    write_folder(local, folder)
    (folder / "arrays").mkdir()
    for name in ARRAYS:
        np.save(folder / "arrays" / f"{name}.npy", getattr(local, name))
    card = SiteCard(
        client=number,
        clients=len(content["clients"]),
        num_nodes=local.num_nodes,
        class_names=local.class_names,
        ids_sha256=content["clients"][number]["ids_sha256"],
        partition_sha256=content["sha256"],
    )
    (folder / CARD).write_text(json.dumps(asdict(card), indent=1), encoding="utf-8")


def _write_text(texts: Sequence[str], bank: TextBank, folder: Path) -> None:
    part = bank.gather(texts)
    np.save(folder / "arrays" / "chunk_sha256.npy", chunk_digests(texts, part))
    save_slice(folder / "text", part, bank.meta)
