"""From a data set to client folders: load, encode, partition. Done once, found again by everything that decides it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from dance_flwr.config import RunConfig
from dance_flwr.data import load_graph, source_identity
from dance_flwr.data.folder import write_folder
from dance_flwr.errors import DataError
from dance_flwr.graph import TextGraph
from dance_flwr.partition import (
    Partition,
    PartitionSpec,
    client_nodes,
    make_partition,
    manifest,
    read_manifest,
    write_manifest,
)
from dance_flwr.paths import PROJECT, data_root
from dance_flwr.site import CARD, SiteCard, chunk_digests, read_card
from dance_flwr.text.bank import BankStats, TextBank, save_slice
from dance_flwr.text.encoder import resolve_encoder

MANIFEST = "manifest.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A partition that is ready to run.

    Attributes
    ----------
    folder : holds `manifest.json` and `client-K/` for every client
    manifest : its content, checked
    encoded : what encoding took; None when everything was found
    """

    folder: Path
    manifest: dict[str, Any]
    encoded: BankStats | None


def prepare(config: RunConfig, say: Say = lambda line: None) -> Prepared:
    """Return the partition that `config` describes, making what is missing.

    Texts are encoded into the bank under the data root, which serves every partition; each client folder then gets
    its own slice of it. A partition appears under its final name only when it is whole.

    Parameters
    ----------
    say : receives one line per step

    Raises
    ------
    DataError : the data, the encoder, or a partition made earlier is not what it should be
    """
    root = data_root(config)
    encoder = resolve_encoder(config.encoder, config.encoder_precision, config.encoder_sha256)
    bank = TextBank(root, encoder, config.chunk_tokens, config.max_chunks)
    spec = partition_spec(config)
    identity = {"source": source_identity(config.data), "partition": asdict(spec), "bank": bank.fingerprint}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    folder = root / "partitions" / f"{Path(config.data).name}-{spec.method}-{spec.clients}-seed{spec.seed}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if (folder / MANIFEST).is_file():
            say(f"partition   {folder} (found)")
            return Prepared(folder, check(folder), None)
        say(f"data        reading {config.data}")
        graph = load_graph(config.data)
        say(f"data        {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {len(graph.class_names)} classes")
        # The partition first: what cannot be partitioned is not worth encoding.
        partition = make_partition(graph, spec)
        made = manifest(graph, partition)
        _compare_committed(made)
        stats = bank.ensure(graph.texts)
        say(
            f"text bank   {stats.chunks_encoded:,} chunks of {stats.texts_encoded:,} texts encoded in "
            f"{stats.seconds:.0f} s, {stats.texts_total - stats.texts_encoded:,} texts found"
        )
        _write(graph, partition, made, bank, folder)
    kept = made["ratio_of_edges_kept"]
    say(f"partition   {folder} (made: {spec.clients} clients, {kept:.1%} of the edges kept)")
    return Prepared(folder, made, stats)


def partition_spec(config: RunConfig) -> PartitionSpec:
    """Return the keys of `config` that decide the partition."""
    return PartitionSpec(
        method=config.partition,
        clients=config.clients,
        seed=config.seed,
        resolution=config.resolution,
        train_ratio=config.train_ratio,
        val_ratio=config.val_ratio,
        test_ratio=config.test_ratio,
    )


def check(folder: Path) -> dict[str, Any]:
    """Return the manifest of a partition after checking it and every client's folder against it.

    Raises
    ------
    DataError : the manifest was altered, or a client folder belongs to another partition or holds other nodes
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


def _write(graph: TextGraph, partition: Partition, content: dict[str, Any], bank: TextBank, folder: Path) -> None:
    """Write manifest and client folders under a temporary name, then give them their own."""
    whole = TextGraph(**vars(graph) | {"split": partition.split})
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for number in range(partition.spec.clients):
            local = whole.subgraph(client_nodes(partition, number), f"{graph.name}-client-{number}")
            _write_client(local, number, content, bank, building / f"client-{number}")
        write_manifest(building / MANIFEST, content)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _write_client(local: TextGraph, number: int, content: dict[str, Any], bank: TextBank, folder: Path) -> None:
    """Write one client's folder: all that this client's machine needs."""
    write_folder(local, folder)
    part = bank.gather(local.texts)
    save_slice(folder / "text", part, bank.meta)
    arrays = {name: getattr(local, name) for name in ("indptr", "indices", "labels", "split")}
    arrays["chunk_sha256"] = chunk_digests(local.texts, part)
    (folder / "arrays").mkdir()
    for name, array in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    card = SiteCard(
        client=number,
        clients=len(content["clients"]),
        num_nodes=local.num_nodes,
        class_names=local.class_names,
        ids_sha256=content["clients"][number]["ids_sha256"],
        partition_sha256=content["sha256"],
        encoder_sha256=bank.spec.weights_sha256,
        text_dim=bank.spec.dim,
    )
    (folder / CARD).write_text(json.dumps(asdict(card), indent=1), encoding="utf-8")


def committed_manifest(content: dict[str, Any]) -> Path:
    """Return where the project keeps the manifest of this data set and partition, if it keeps one."""
    spec = content["spec"]
    name = f"{content['dataset']}-{spec['method']}-{spec['clients']}-seed{spec['seed']}.json"
    return PROJECT / "partitions" / name


def _compare_committed(content: dict[str, Any]) -> None:
    """Check a new partition against the committed manifest of the same data and settings.

    Raises
    ------
    DataError : the same data and settings gave other clients than those committed
    """
    path = committed_manifest(content)
    if not path.is_file():
        return
    kept = read_manifest(path)
    same_input = kept["provenance"] == content["provenance"] and kept["spec"] == content["spec"]
    if same_input and kept["sha256"] != content["sha256"]:
        raise DataError(
            f"expected the partition of {path}, sha256 {kept['sha256'][:12]}, found {content['sha256'][:12]}; "
            "a library that partitions has changed: install the versions of constraints.txt"
        )
