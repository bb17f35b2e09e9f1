"""The client folder of an institution with its own graph, with agreed classes and encoder."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from dance_flwr.config.paths import check_out
from dance_flwr.config.sections import DataConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import ClientCard
from dance_flwr.data.checks import check_classes
from dance_flwr.data.client_folder import Log, client_card, client_graph, encode_texts, write_client
from dance_flwr.data.federation_file import Agreement
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.partition import make_partition, manifest
from dance_flwr.data.prepare import partition_spec, text_bank
from dance_flwr.data.text_record import TextRecord
from dance_flwr.disk import atomic_folder
from dance_flwr.errors import DataError, UserError


def make_folder(
    data: str | TextGraph,
    agreement: Agreement,
    client: int,
    clients: int,
    out: Path,
    *,
    encoder: str = "",
    seed: int = 0,
    log: Log = lambda line: None,
) -> ClientCard:
    """Create one client's folder from a whole graph; it appears whole or not at all.

    Parameters
    ----------
    data : a graph, the name of a data set, or the folder of a graph
    agreement : class names and their order, encoder and chunk settings
    client, clients : number of this client, and number of all clients
    out : the new folder
    encoder : name or folder of the agreed encoder on this machine; "" for the agreed name
    seed : seed of the split if the graph has none
    log : receives one line per step

    Returns
    -------
    the folder's card

    Raises
    ------
    DataError : the graph has a class that was not agreed, a server would refuse the classes, or the
        encoder is another one
    UserError : `out` exists or cannot be created, or `client` is not in 0..clients-1
    """
    if not 0 <= client < clients:
        raise UserError(
            f"--client: expected a number in 0..{clients - 1}, found {client}; "
            "every node has its own number"
        )
    if out.exists():
        raise UserError(f"--out: expected a new folder, found {out}; choose another or remove it")
    check_out(out)
    check_classes(agreement.class_names)
    config = replace(
        RunConfig(),
        seed=seed,
        encoder=encoder or agreement.encoder,
        encoder_sha256=agreement.encoder_sha256,
        chunk_tokens=agreement.chunk_tokens,
        max_chunks=agreement.max_chunks,
    )
    loaded = load_graph(data) if isinstance(data, str) else data
    graph = relabel(loaded, agreement.class_names)
    return write_whole(graph, config, out, client=client, clients=clients, log=log)


def write_whole(
    graph: TextGraph,
    config: DataConfig,
    out: Path,
    *,
    client: int = 0,
    clients: int = 1,
    log: Log = lambda line: None,
) -> ClientCard:
    """Write a whole graph as the folder of one client; return its card."""
    # One client gets all nodes from any partitioner; this one needs no column and no package.
    spec = replace(partition_spec(config), method="random", clients=1)
    partition = make_partition(graph, spec)
    bank = text_bank(config)
    encode_texts(TextRecord.of(graph.texts, graph.edge_texts).encoded, bank, log)
    card = replace(client_card(manifest(graph, partition), 0), client=client, clients=clients)
    whole = replace(graph, split=partition.split)
    with atomic_folder(out) as draft:
        write_client(client_graph(whole, partition, 0), card, draft, bank)
    return card


def relabel(graph: TextGraph, names: tuple[str, ...]) -> TextGraph:
    """Return a graph with labels numbered by these class names, including unused ones."""
    unknown = [name for name in graph.class_names if name not in names]
    if unknown:
        agreed = ", ".join(map(repr, names))
        raise DataError(
            f"{graph.name}: expected the agreed classes {agreed}, "
            f"found {', '.join(map(repr, unknown))}; "
            "rename these labels in the node table, or remove them"
        )
    # The last entry is for unlabelled nodes, whose label is -1.
    numbers = np.array([*(names.index(name) for name in graph.class_names), -1], np.int64)
    return replace(graph, class_names=names, labels=numbers[graph.labels])
