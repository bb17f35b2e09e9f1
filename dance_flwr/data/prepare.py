"""From a data set to client folders: load, encode, partition. Done once, found again by everything
that decides it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from dance_flwr.config.paths import MANIFEST, PROJECT, data_root
from dance_flwr.config.sections import DataConfig
from dance_flwr.data import load_graph, source_identity
from dance_flwr.data.client_folder import Say, check, write_partition
from dance_flwr.data.partition import PartitionSpec, make_partition, manifest, read_manifest
from dance_flwr.data.text.bank import BankStats, TextBank
from dance_flwr.data.text.encoder import resolve_encoder
from dance_flwr.errors import DataError


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


def partition_folder(config: DataConfig) -> Path:
    """Return where the partition that `config` describes is, or will be; nothing is made.

    Raises
    ------
    DataError : the data or the encoder is missing
    """
    return _folder(config, text_bank(config))


def _folder(config: DataConfig, bank: TextBank) -> Path:
    root, spec = data_root(config), partition_spec(config)
    source = source_identity(config.data, root)
    identity = {"source": source, "partition": asdict(spec), "bank": bank.fingerprint}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return (
        root
        / "partitions"
        / f"{Path(config.data).name}-{spec.method}-{spec.clients}-seed{spec.seed}-{key}"
    )


def prepare(config: DataConfig, say: Say = lambda line: None) -> Prepared:
    """Return the partition that `config` describes, making what is missing.

    Texts are encoded into the bank under the data root, which serves every partition; each client
    folder then gets its own slice of it. A partition appears under its final name only when it is
    whole.

    Parameters
    ----------
    say : receives one line per step

    Raises
    ------
    DataError : the data, the encoder, or a partition made earlier is not what it should be
    """
    root = data_root(config)
    bank, spec = text_bank(config), partition_spec(config)
    folder = _folder(config, bank)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if (folder / MANIFEST).is_file():
            say(f"partition   {folder} (found)")
            return Prepared(folder, check(folder), None)
        say(f"data        reading {config.data}")
        graph = load_graph(config.data, root)
        say(
            f"data        {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {len(graph.class_names)} classes"
        )
        # The partition first: what cannot be partitioned is not worth encoding.
        partition = make_partition(graph, spec)
        made = manifest(graph, partition)
        _compare_committed(made)
        stats = write_partition(graph, partition, made, folder, bank, say)
    kept = made["ratio_of_edges_kept"]
    say(f"partition   {folder} (made: {spec.clients} clients, {kept:.1%} of the edges kept)")
    return Prepared(folder, made, stats)


def text_bank(config: DataConfig) -> TextBank:
    """Return the bank that `config` describes, under the data root; no model is loaded yet.

    Raises
    ------
    DataError : the encoder is missing, or its weights have another hash than expected
    """
    encoder = resolve_encoder(config.encoder, config.encoder_precision, config.encoder_sha256)
    return TextBank(data_root(config), encoder, config.chunk_tokens, config.max_chunks)


def partition_spec(config: DataConfig) -> PartitionSpec:
    """Return the keys of `config` that decide the partition."""
    return PartitionSpec(
        method=config.partition,
        clients=config.clients,
        seed=config.seed,
        resolution=config.resolution,
        train_ratio=config.train_ratio,
        val_ratio=config.val_ratio,
        test_ratio=config.test_ratio,
        alpha=config.dirichlet_alpha,
    )


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
