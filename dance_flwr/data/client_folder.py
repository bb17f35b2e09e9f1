"""Client folders, the privacy boundary: everything that one SuperNode needs, and nothing else.

A folder holds `client.json` (the card), `nodes.parquet` with the texts of record, `edges.parquet`,
`edge_texts.parquet` (where texts of edges lie in those of nodes, if there are any), `arrays/`
(memory-mapped), `text/` (the client's slice of the text bank, absent until its texts are encoded)
and `runs/` (state and evidence of each run). It is written once; the card has a digest of every
file, and each run checks them before it starts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dance_flwr.config.paths import MANIFEST
from dance_flwr.data.card import ARRAYS, WEIGHTS, ClientCard, chunk_digests, read_card
from dance_flwr.data.digests import write_card
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.partition import (
    OUTSIDE,
    Partition,
    client_nodes,
    read_manifest,
    write_manifest,
)
from dance_flwr.data.partition.random_edges import with_random_edges
from dance_flwr.data.text.bank import TextBank
from dance_flwr.data.text.bank_slice import save_slice
from dance_flwr.data.text.foreign import MixedTexts, mix, mixed_texts
from dance_flwr.data.text_record import TextRecord
from dance_flwr.disk import atomic_file, atomic_folder, write_text
from dance_flwr.errors import DataError, counted
from dance_flwr.terminal import bar

Log = Callable[[str], None]

WARNINGS = "warnings.txt"  # in the folder of a partition: lines of when it was made
_FOREIGN = "chunk_foreign"  # array of a client whose texts are mixed: which chunks are foreign


def write_partition(
    graph: TextGraph,
    partition: Partition,
    content: dict[str, Any],
    folder: Path,
    bank: TextBank,
    log: Log = lambda line: None,
    warnings: Sequence[str] = (),
) -> None:
    """Write the manifest and one folder per client; `folder` appears whole or not at all.

    Only the user who runs this may open the new folder.

    Parameters
    ----------
    content : manifest of this partition
    bank : encodes the texts and provides each client's slice
    log : receives one line per step
    warnings : lines that are kept beside the manifest

    Raises
    ------
    DataError : texts are to be mixed with fewer than two nodes, or with texts of edges
    """
    if partition.spec.foreign_text_ratio and graph.edge_texts is not None:
        raise DataError(
            "foreign-text-ratio: expected a graph without texts of edges, found "
            f"{len(graph.edge_texts):,}; set it to 0, or import the graph without them"
        )
    encode_texts(_encoded_texts(graph, partition), bank, log)
    ratio = partition.spec.foreign_text_ratio
    mixed = _mixed(graph, partition, bank, log) if ratio else None
    whole = replace(graph, split=partition.split)  # checked once, not once per client
    clients = partition.spec.clients
    with atomic_folder(folder) as draft, bar("clients", clients, "written") as shown:
        for number in range(clients):
            local, card = client_graph(whole, partition, number), client_card(content, number)
            texts = mixed(number) if mixed else None
            write_client(local, card, draft / f"client-{number}", bank, texts)
            shown.move(number + 1)
        if warnings:
            write_text(draft / WARNINGS, "".join(f"{line}\n" for line in warnings))
        write_manifest(draft / MANIFEST, content)


def client_graph(whole: TextGraph, partition: Partition, number: int) -> TextGraph:
    """Return the subgraph of one client, with the random edges of the partition.

    Its texts are the nodes' own, also where the client's folder has mixed ones.

    Parameters
    ----------
    whole : the graph, with the split of the partition
    """
    local = whole.subgraph(client_nodes(partition, number), f"{whole.name}-client-{number}")
    return with_random_edges(local, partition.spec.random_edge_ratio, partition.spec.seed, number)


def _mixed(
    graph: TextGraph, partition: Partition, bank: TextBank, log: Log
) -> Callable[[int], MixedTexts]:
    """Return a function that takes the number of a client, and returns its mixed texts.

    Chunks are drawn from all nodes that a client holds, whichever client it is.
    """
    spec, texts = partition.spec, _held_texts(graph, partition)
    part = bank.gather(texts)
    mixture = mix(part.ptr, spec.foreign_text_ratio, spec.seed)
    place = np.cumsum(partition.assignment != OUTSIDE) - 1  # among the nodes held
    log(
        f"texts       mixed: {mixture.foreign.mean():.1%} of {len(mixture.rows):,} chunks are of "
        "other nodes"
    )
    return lambda number: mixed_texts(texts, part, mixture, place[client_nodes(partition, number)])


def _held_texts(graph: TextGraph, partition: Partition) -> list[str]:
    held = partition.assignment != OUTSIDE
    if held.all():
        return graph.texts
    return [graph.texts[i] for i in np.flatnonzero(held)]


def _encoded_texts(graph: TextGraph, partition: Partition) -> list[str]:
    """Return the texts that the clients' records are made of: own ones, then those of edges."""
    texts = _held_texts(graph, partition)
    if graph.edge_texts is None:
        return texts
    where = partition.assignment
    # Rows stay, -1 where no client holds the node: a text is one of an edge inside a client.
    place = np.where(where == OUTSIDE, -1, np.arange(graph.num_nodes))
    inside = graph.edge_texts.between(place, where)
    return [*texts, *filter(None, TextRecord.of(graph.texts, inside).edge_texts)]


def client_card(content: dict[str, Any], number: int) -> ClientCard:
    """Return the card of one client of a partition, from the partition's manifest."""
    client = content["clients"][number]
    return ClientCard(
        client=number,
        clients=len(content["clients"]),
        num_nodes=client["nodes"],
        class_names=tuple(content["class_names"]),
        ids_sha256=client["ids_sha256"],
        partition_sha256=content["sha256"],
    )


def write_client(
    graph: TextGraph,
    card: ClientCard,
    folder: Path,
    bank: TextBank,
    mixed: MixedTexts | None = None,
) -> None:
    """Write one client's folder.

    Parameters
    ----------
    bank : must hold the texts of `graph`, as `TextRecord.encoded` has them
    mixed : takes the place of the texts of `graph` and of their chunks
    """
    record = TextRecord.of(mixed.texts if mixed else graph.texts, graph.edge_texts)
    texts = record.texts
    if mixed or record.spans:
        # The texts of edges are in those of nodes: nobody reads them a second time.
        graph = replace(graph, texts=texts, edge_texts=None)
    write_folder(graph, folder)
    if record.spans:
        record.spans.write(folder, graph.ids.tolist())
    (folder / "arrays").mkdir()
    # A file for each array, so that a process maps what it reads.
    for name in ARRAYS:
        np.save(folder / "arrays" / f"{name}.npy", getattr(graph, name))
    if graph.weights is not None:
        np.save(folder / "arrays" / f"{WEIGHTS}.npy", graph.weights)
    if mixed:
        np.save(folder / "arrays" / f"{_FOREIGN}.npy", mixed.foreign)
    part = mixed.part if mixed else record.gather(bank)
    with atomic_file(folder / "arrays" / "chunk_sha256.npy") as file:
        np.save(file, chunk_digests(texts, part))
    save_slice(folder / "text", part, bank.meta)
    # Last: the card holds the digests of the complete files.
    write_card(folder, card)


def check(folder: Path) -> dict[str, Any]:
    """Return a partition's manifest after checking it and comparing every client's card with it.

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
        actual = (card.client, card.partition_sha256, card.ids_sha256)
        if actual != expected:
            raise DataError(
                f"{where}: expected client, partition and ids {expected}, found {actual}; "
                f"delete {folder} and prepare the partition again"
            )
    return content


def encode_texts(texts: Sequence[str], bank: TextBank, log: Log) -> None:
    """Encode the texts that the bank lacks and report the numbers in one line."""
    stats = bank.ensure(texts)
    log(
        f"text bank   {counted(stats.chunks_encoded, 'chunk')} of "
        f"{counted(stats.texts_encoded, 'text')} encoded in "
        f"{stats.seconds:.0f} s, {counted(stats.texts_total - stats.texts_encoded, 'text')} "
        "already there"
    )
