"""From a data set to client folders: load, partition, encode; an existing result is reused."""

import glob
import hashlib
import json
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.config.paths import MANIFEST, PROJECT, check_folder, data_root
from dance_flwr.config.sections import DataConfig
from dance_flwr.data import checks
from dance_flwr.data.card import FOLDER_FORMAT
from dance_flwr.data.client_folder import WARNINGS, Log, check, write_partition
from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph
from dance_flwr.data.imports.loading import load_graph, source_identity
from dance_flwr.data.partition import (
    OUTSIDE,
    Partition,
    PartitionSpec,
    client_nodes,
    make_partition,
    manifest,
    read_manifest,
)
from dance_flwr.data.text.bank import TextBank
from dance_flwr.data.text.encoder import resolve_encoder
from dance_flwr.data.text.encoder_files import TOKENIZER
from dance_flwr.disk import awaited_lock
from dance_flwr.errors import DataError, counted
from dance_flwr.terminal import bar

WARNING = "warning     "  # how a warning begins among the lines of `prepare`


@dataclass(frozen=True)
class Prepared:
    """A partition that is ready to run.

    Attributes
    ----------
    folder : contains `manifest.json` and a folder `client-K/` per client
    manifest : content of the manifest, checked
    """

    folder: Path
    manifest: dict[str, Any]


def partition_folder(config: DataConfig, bank: TextBank | None = None) -> Path:
    """Return the folder of the partition that `config` describes, without creating it.

    Parameters
    ----------
    bank : `text_bank` of the configuration; None = opened here
    """
    bank, root, spec = bank or text_bank(config), data_root(config), partition_spec(config)
    source = source_identity(config.data, root)
    # The name changes with all that the folders depend on, and with nothing else.
    made_of = {"source": source, "partition": spec.settings(), "bank": bank.fingerprint}
    identity = {**made_of, "format": FOLDER_FORMAT}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return root / "partitions" / f"{_without_hash(config)}-{key}"


def _without_hash(config: DataConfig) -> str:
    spec = partition_spec(config)
    return f"{Path(config.data).name}-{spec.method}-{spec.clients}-seed{spec.seed}{spec.regime()}"


def load_new(config: DataConfig, log: Log = lambda line: None) -> TextGraph | None:
    """Return the graph of `config`, checked; None where its partition may exist already."""
    # By names alone: for their hash, torch is imported, too late for a graph without labels.
    check_folder(root := data_root(config), "`data-root`")
    made = (root / "partitions").glob(f"{glob.escape(_without_hash(config))}-*")
    return None if any(made) else load(config, log)


def prepare(
    config: DataConfig, log: Log = lambda line: None, graph: TextGraph | None = None
) -> Prepared:
    """Return the partition that `config` describes, creating it if it does not exist.

    Texts are encoded into the bank under the data root, which all partitions share; each client
    folder then receives its own slice. A partition has its final name only when it is complete, and
    nothing is written for one that is refused.

    Parameters
    ----------
    log : receives one line per step, and one per warning, also where the partition exists
    graph : the result of `load_new`, if it was called

    Raises
    ------
    DataError : the data, the encoder or an existing partition is not as expected, or a run could
        not learn from the data
    """
    graph = load_new(config, log) if graph is None else graph
    bank, spec = text_bank(config), partition_spec(config)
    folder = partition_folder(config, bank)
    if (folder / MANIFEST).is_file():
        return _existing(folder, log)
    graph = load(config, log) if graph is None else graph
    warned: list[str] = []

    def warn(line: str) -> None:
        warned.append(line)
        log(line)

    # Partition before encoding, so that bad partition settings fail at once.
    partition, content = checked_partition(graph, spec, warn)
    limit = -(-checks.SAMPLE // spec.clients)
    nodes = [i for k in range(spec.clients) for i in client_nodes(partition, k)[:limit]]
    if line := checks.unread_texts([graph.texts[i] for i in nodes], bank.spec.folder / TOKENIZER):
        warn(WARNING + line)
    _compare_committed(content)
    # Two runs that start together encode once.
    line = f"partition   waits for {folder}, which another run is making"
    with awaited_lock(folder.parent / f".{folder.name}.lock", 0, lambda: log(line)):
        if (folder / MANIFEST).is_file():
            return _existing(folder, log)
        write_partition(graph, partition, content, folder, bank, log, warned)
    ratio = content["ratio_of_edges_kept"]
    log(
        f"partition   {folder} (made: {counted(spec.clients, 'client')}, {ratio:.1%} of the edges "
        "kept)"
    )
    return Prepared(folder, content)


def checked_partition(
    graph: TextGraph, spec: PartitionSpec, log: Log
) -> tuple[Partition, dict[str, Any]]:
    """Return the partition of a graph for a run, and its manifest."""
    checks.check_graph(graph, spec.clients)
    with bar("partition"):
        partition = make_partition(graph, spec)
        content = manifest(graph, partition)
    names, size = graph.class_names, len(SPLIT_NAMES)
    labelled = (partition.assignment != OUTSIDE) & (graph.labels >= 0)
    cells = graph.labels[labelled] * size + partition.split[labelled]
    splits = np.bincount(cells, minlength=len(names) * size).reshape(-1, size)
    checks.check_training(splits)
    if outside := content["report"].get("outside"):
        log(
            f"partition   {outside['nodes']:,} of {counted(graph.num_nodes, 'node')} "
            f"({outside['nodes'] / graph.num_nodes:.1%}) take no part, as no client holds them; "
            f"with them {outside['edges']:,} of {content['num_edges']:,} edges"
        )
    lines = (
        checks.untrained_classes(names, splits),
        checks.single_class(names, splits),
        checks.without_edges(content["num_edges"]),
    )
    for line in filter(None, lines):
        log(WARNING + line)
    return partition, content


def load(config: DataConfig, log: Log = lambda line: None) -> TextGraph:
    """Return the graph of `config`; a `DataError` says why it cannot be used."""
    log(f"data        reading {config.data}")
    # Without a column of labels it has none, which `check_graph` refuses with what to do.
    graph = load_graph(config.data, data_root(config))
    log(
        f"data        {counted(graph.num_nodes, 'node')}, {counted(graph.num_edges, 'edge')}, "
        f"{counted(len(graph.class_names), 'class', 'classes')}"
    )
    checks.check_graph(graph, config.clients)
    return graph


def _existing(folder: Path, log: Log) -> Prepared:
    """Return an existing partition, and repeat the warnings of when it was made."""
    content = check(folder)
    log(f"partition   {folder} (found)")
    if (folder / WARNINGS).is_file():
        for line in (folder / WARNINGS).read_text(encoding="utf-8").splitlines():
            log(line)
    return Prepared(folder, content)


def text_bank(config: DataConfig) -> TextBank:
    """Return the text bank that `config` describes, under the data root; loads no model."""
    check_folder(root := data_root(config), "`data-root`, or another $DANCE_FLWR_HOME")
    device = "cuda" if import_module("torch").cuda.is_available() else "cpu"
    settings = config.encoder, config.encoder_precision, config.encoder_sha256
    encoder = resolve_encoder(*settings, device=device)
    return TextBank(root, encoder, config.chunk_tokens, config.max_chunks, device)


def partition_spec(config: DataConfig) -> PartitionSpec:
    """Return the settings of `config` that determine the partition."""
    named: dict[str, Any] = {"method": config.partition, "alpha": config.dirichlet_alpha}
    same = [item.name for item in fields(PartitionSpec) if item.name not in named]
    return PartitionSpec(**named, **{name: getattr(config, name) for name in same})


def _compare_committed(content: dict[str, Any]) -> None:
    spec = content["spec"]
    name = f"{content['dataset']}-{spec['method']}-{spec['clients']}-seed{spec['seed']}.json"
    path = PROJECT / "partitions" / name
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
