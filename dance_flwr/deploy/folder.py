"""The client folder of an institution that brings its own graph: in the agreed classes, encoded as
agreed.
"""

import json
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from dance_flwr.config.tree import RunConfig
from dance_flwr.data import load_graph
from dance_flwr.data.client_folder import Say, write_partition
from dance_flwr.data.graph import TextGraph
from dance_flwr.data.partition import make_partition, manifest
from dance_flwr.data.prepare import partition_spec, text_bank
from dance_flwr.data.site import CARD, SiteCard, read_card
from dance_flwr.deploy.agreement import Agreement
from dance_flwr.errors import DataError, UserError


def make_folder(
    data: str,
    agreement: Agreement,
    client: int,
    clients: int,
    out: Path,
    *,
    encoder: str = "",
    seed: int = 0,
    say: Say = lambda line: None,
) -> SiteCard:
    """Make one client's folder from a whole graph; it appears complete or not at all.

    Parameters
    ----------
    data : data set name, or the folder of a graph
    agreement : gives class names and their order, encoder and chunks
    client, clients : number of this client, and of all
    out : the new folder
    encoder : name or folder of the agreed encoder on this machine; "" = the agreed name
    seed : of the split, where the graph brings none
    say : receives one line per step

    Returns
    -------
    the folder's card

    Raises
    ------
    DataError : the graph has a class that was not agreed, or the encoder is another
    UserError : `out` exists, or there is no such client
    """
    if not 0 <= client < clients:
        raise UserError(
            f"--client: expected a number in 0..{clients - 1}, found {client}; every node has another"
        )
    if out.exists():
        raise UserError(f"--out: expected a new folder, found {out}; choose another or remove it")
    config = replace(
        RunConfig(),
        partition="random",
        clients=1,
        seed=seed,
        encoder=encoder or agreement.encoder,
        encoder_sha256=agreement.encoder_sha256,
        chunk_tokens=agreement.chunk_tokens,
        max_chunks=agreement.max_chunks,
    )
    graph = in_classes(load_graph(data), agreement.class_names)
    partition = make_partition(graph, partition_spec(config))
    bank = text_bank(config)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        write_partition(graph, partition, manifest(graph, partition), building / "made", bank, say)
        made = building / "made" / "client-0"
        card = replace(read_card(made), client=client, clients=clients)
        (made / CARD).write_text(json.dumps(asdict(card), indent=1), encoding="utf-8")
        made.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return card


def in_classes(graph: TextGraph, names: tuple[str, ...]) -> TextGraph:
    """Return a graph whose labels are numbered by these class names; classes without a node stay.

    Raises
    ------
    DataError : a node has another class
    """
    unknown = [name for name in graph.class_names if name not in names]
    if unknown:
        agreed = ", ".join(map(repr, names))
        raise DataError(
            f"{graph.name}: expected the agreed classes {agreed}, found {', '.join(map(repr, unknown))}; "
            "rename these labels in the node table, or empty them"
        )
    number = np.array(
        [*(names.index(name) for name in graph.class_names), -1], np.int64
    )  # -1, unlabelled, is the last
    return replace(graph, class_names=names, labels=number[graph.labels])
