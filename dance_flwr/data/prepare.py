"""From a data set to client folders: load, partition, encode; an existing result is reused."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from dance_flwr.config.outputs import check_folder
from dance_flwr.config.paths import MANIFEST, PROJECT, data_root
from dance_flwr.config.sections import DataConfig
from dance_flwr.data.card import FOLDER_FORMAT
from dance_flwr.data.client_folder import Log, check, write_partition
from dance_flwr.data.imports.loading import load_graph, source_identity
from dance_flwr.data.partition import PartitionSpec, make_partition, manifest, read_manifest
from dance_flwr.data.text.bank import BankStats, TextBank
from dance_flwr.data.text.encoder import resolve_encoder
from dance_flwr.errors import DataError


@dataclass(frozen=True)
class Prepared:
    """A partition that is ready to run.

    Attributes
    ----------
    folder : contains `manifest.json` and a folder `client-K/` per client
    manifest : content of the manifest, checked
    encoded : statistics of the encoding; None if the partition existed already
    """

    folder: Path
    manifest: dict[str, Any]
    encoded: BankStats | None


def partition_folder(config: DataConfig) -> Path:
    """Return the folder of the partition that `config` describes, without creating it.

    Raises
    ------
    DataError : the data or the encoder is missing
    """
    return _folder(config, text_bank(config))


def _folder(config: DataConfig, bank: TextBank) -> Path:
    root, spec = data_root(config), partition_spec(config)
    source = source_identity(config.data, root)
    # The name changes with all that the folders depend on, and with nothing else.
    made_of = {"source": source, "partition": spec.settings(), "bank": bank.fingerprint}
    identity = {**made_of, "format": FOLDER_FORMAT}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    name = f"{Path(config.data).name}-{spec.method}-{spec.clients}-seed{spec.seed}{spec.regime()}"
    return root / "partitions" / f"{name}-{key}"


def prepare(config: DataConfig, log: Log = lambda line: None) -> Prepared:
    """Return the partition that `config` describes, creating it if it does not exist.

    Texts are encoded into the bank under the data root, which all partitions share; each client
    folder then receives its own slice. A partition has its final name only when it is complete.

    Parameters
    ----------
    log : receives one line per step

    Raises
    ------
    DataError : the data, the encoder or an existing partition is not as expected
    """
    root = data_root(config)
    bank, spec = text_bank(config), partition_spec(config)
    folder = _folder(config, bank)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two runs that start together prepare once.
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if (folder / MANIFEST).is_file():
            log(f"partition   {folder} (found)")
            return Prepared(folder, check(folder), None)
        log(f"data        reading {config.data}")
        graph = load_graph(config.data, root)
        log(
            f"data        {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
            f"{len(graph.class_names)} classes"
        )
        # Partition before encoding, so that bad partition settings fail at once.
        partition = make_partition(graph, spec)
        content = manifest(graph, partition)
        _log_outside(content, log)
        _compare_committed(content)
        stats = write_partition(graph, partition, content, folder, bank, log)
    ratio = content["ratio_of_edges_kept"]
    log(f"partition   {folder} (made: {spec.clients} clients, {ratio:.1%} of the edges kept)")
    return Prepared(folder, content, stats)


def _log_outside(content: dict[str, Any], log: Log) -> None:
    """Report the nodes that no client holds, if there are any."""
    outside, num_nodes = content["report"].get("outside"), content["num_nodes"]
    if outside:
        log(
            f"partition   {outside['nodes']:,} of {num_nodes:,} nodes "
            f"({outside['nodes'] / num_nodes:.1%}) take no part, as no client holds them; with "
            f"them {outside['edges']:,} of {content['num_edges']:,} edges"
        )


def text_bank(config: DataConfig) -> TextBank:
    """Return the text bank that `config` describes, under the data root; loads no model.

    Raises
    ------
    DataError : the encoder is missing, or the hash of its weights is not the expected one
    UserError : a file is where the data root would be
    """
    check_folder(root := data_root(config), "`data-root`")
    encoder = resolve_encoder(config.encoder, config.encoder_precision, config.encoder_sha256)
    return TextBank(root, encoder, config.chunk_tokens, config.max_chunks)


def partition_spec(config: DataConfig) -> PartitionSpec:
    """Return the settings of `config` that determine the partition."""
    return PartitionSpec(
        method=config.partition,
        clients=config.clients,
        seed=config.seed,
        resolution=config.resolution,
        train_ratio=config.train_ratio,
        val_ratio=config.val_ratio,
        test_ratio=config.test_ratio,
        alpha=config.dirichlet_alpha,
        labels_per_class=config.labels_per_class,
        foreign_text_ratio=config.foreign_text_ratio,
        random_edge_ratio=config.random_edge_ratio,
        max_client_nodes=config.max_client_nodes,
    )


def committed_manifest(content: dict[str, Any]) -> Path:
    """Return the path of this partition's manifest in the repository; it may not exist."""
    spec = content["spec"]
    name = f"{content['dataset']}-{spec['method']}-{spec['clients']}-seed{spec['seed']}.json"
    return PROJECT / "partitions" / name


def _compare_committed(content: dict[str, Any]) -> None:
    """Compare a new partition with the committed manifest of the same data and settings.

    Raises
    ------
    DataError : the same data and settings gave other clients than the committed ones
    """
    path = committed_manifest(content)
    if not path.is_file():
        return
    committed = read_manifest(path)
    # Data of other package versions rightly give another partition.
    same_input = all(committed[name] == content[name] for name in ("provenance", "spec"))
    if same_input and committed["sha256"] != content["sha256"]:
        raise DataError(
            f"expected the partition of {path}, sha256 {committed['sha256'][:12]}, "
            f"found {content['sha256'][:12]}; "
            "a library that partitions has changed: install the versions of constraints.txt"
        )
