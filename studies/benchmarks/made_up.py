"""A made-up federation of any size: client folders with texts, embeddings and labels.

    python studies/benchmarks/made_up.py FOLDER [--nodes 1000000] [--clients 20] [--seed 0]
    python studies/benchmarks/made_up.py FOLDER --run method=fedavg-full rounds=3
    python studies/benchmarks/made_up.py FOLDER --run client-fraction=0.02 evaluate-fraction=0.02

The graph is a degree-corrected block model. A client holds whole communities. Each community has
a topic, drawn from the mixture of its client, which is the label of nine in ten of its nodes. A
text has one to three sentences that name the node and its topic. No encoder reads them: the
embedding of a sentence is a unit vector near the centre of its topic. Everything follows from the
seed.

`--run` trains on the folders in this process; configuration keys follow it.
"""

import argparse
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.config.paths import check_out
from dance_flwr.config.text import read_values
from dance_flwr.config.tree import parse
from dance_flwr.data.client_folder import check, write_partition
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.data.partition import PartitionSpec, make_partition, manifest
from dance_flwr.data.text.bank import BankStats
from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.errors import UserError

CLASSES = 20
COMMUNITY = 250  # mean nodes of a community
INSIDE = 0.8  # share of the draws that stay inside a community
TAIL = 2.5  # exponent of the degrees' power law
MOST_CHUNKS = 3
RANDOM_LABELS = 0.1  # share of the labels that are drawn at random
SIGNAL = 0.15  # length of a topic's centre, where the noise around it has length 1
SENTENCE = "Entry {node:08d}.{part} is about topic {topic:03d}."
_LENGTH = len(SENTENCE.format(node=0, part=0, topic=0))
_NODE, _TOPIC = slice(6, 14), slice(_LENGTH - 4, _LENGTH - 1)
_TOKENS = 12  # tokens that a sentence is said to have
_BLOCK = 16_384  # embeddings that are drawn at a time


@dataclass(frozen=True)
class MadeUpBank:
    """Embeddings of the texts of `make_graph`, in the place of a `TextBank`.

    Attributes
    ----------
    dim : width of an embedding
    """

    seed: int
    dim: int

    @property
    def meta(self) -> dict[str, Any]:
        """Content of bank.json."""
        chunks = {"chunk_tokens": _TOKENS, "max_chunks": MOST_CHUNKS, "chunker_version": 1}
        encoder = {
            "encoder": "made-up",
            "weights_sha256": f"made-up-{self.seed}",
            "precision": "float32",
        }
        return {**encoder, "dim": self.dim, **chunks}

    @cached_property
    def centres(self) -> NDArray[np.float32]:
        """[CLASSES, dim], one of length `SIGNAL` per topic."""
        rows = np.random.default_rng(self.seed).standard_normal((CLASSES, self.dim), np.float32)
        return rows * (SIGNAL / np.linalg.norm(rows, axis=1, keepdims=True))

    def ensure(self, texts: Sequence[str]) -> BankStats:
        """Report that nothing has to be encoded."""
        return BankStats(len(texts), 0, 0, 0.0)

    def gather(self, texts: Sequence[str]) -> BankSlice:
        """Return one chunk per sentence; the noise follows from the first node and the seed."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        counts = (lengths + 1) // (_LENGTH + 1)
        ptr = np.concatenate([[0], np.cumsum(counts)])
        part = np.arange(ptr[-1]) - np.repeat(ptr[:-1], counts)
        start = (part * (_LENGTH + 1)).astype(np.int32)
        topic = np.fromiter((int(text[_TOPIC]) for text in texts), np.int64, len(texts))
        owner = np.repeat(topic, counts)
        draw = np.random.default_rng([self.seed, int(texts[0][_NODE])])
        embeddings = np.empty((len(owner), self.dim), np.float16)
        for first in range(0, len(owner), _BLOCK):
            rows = self.centres[owner[first : first + _BLOCK]]
            noise = draw.standard_normal(rows.shape, np.float32) / np.float32(self.dim**0.5)
            rows = rows + noise
            embeddings[first : first + _BLOCK] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        spans = np.stack([start, start + np.int32(_LENGTH)], axis=1)
        return BankSlice(embeddings, spans, np.full(len(owner), _TOKENS, np.int32), ptr)


def synthetic_edges(
    n: int, edges: int, rng: np.random.Generator, size: int = COMMUNITY
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (community [n], source [edges], target [edges]) of a block model, without duplicates.

    Degrees are corrected: they follow a power law, cut at 1,000 times the least. Community sizes
    are geometric-like around `size`.
    """
    count = max(1, n // size)
    community = np.sort(rng.choice(count, n, p=rng.dirichlet(np.full(count, 2.0))))
    weight = np.minimum((1 - rng.random(n)) ** (-1 / (TAIL - 1)), 1000.0)
    # A node owns as many stubs as its weight says: drawing a stub is one look-up, not a binary
    # search.
    owner = np.repeat(np.arange(n), np.floor(4 * weight + rng.random(n)).astype(np.int64))
    first, last = np.searchsorted(
        community[owner], [community, community + 1]
    )  # stubs of a node's community
    keys = np.empty(0, np.int64)
    while len(keys) < edges:
        draws = int(1.2 * (edges - len(keys))) + 100
        source = owner[rng.integers(0, len(owner), draws)]
        inside = rng.random(draws) < INSIDE
        target = owner[
            rng.integers(
                np.where(inside, first[source], 0), np.where(inside, last[source], len(owner))
            )
        ]
        drawn = np.minimum(source, target) * n + np.maximum(source, target)
        keys = np.sort(np.concatenate([keys, drawn[source != target]]))
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    keys = rng.permutation(keys)[:edges]
    # Ids in random order: a real table is not sorted by community.
    place = rng.permutation(n)
    shuffled = np.empty_like(community)
    shuffled[place] = community
    return shuffled, place[keys // n], place[keys % n]


def make_graph(nodes: int, clients: int, seed: int, edges_per_node: int = 10) -> TextGraph:
    """Return the whole graph; `site` is the client that holds each node."""
    draw = np.random.default_rng(seed)
    size = min(COMMUNITY, nodes // clients)
    community, source, target = synthetic_edges(nodes, edges_per_node * nodes, draw, size)
    indptr, indices = csr_from_pairs(source, target, nodes)
    site = _planted(community, clients)
    topic = _topics(community, site, draw)
    labels = np.where(
        draw.random(nodes) < RANDOM_LABELS, draw.integers(0, CLASSES, nodes), topic
    ).astype(np.int64)
    counts = draw.integers(1, MOST_CHUNKS + 1, nodes).tolist()
    width = len(str(clients - 1))
    names = np.array([f"site-{k:0{width}d}" for k in range(clients)])
    return TextGraph(
        name="made-up",
        ids=np.char.add("n", np.arange(nodes).astype(str)),
        texts=[
            " ".join(SENTENCE.format(node=node, part=part, topic=about) for part in range(count))
            for node, (count, about) in enumerate(zip(counts, topic.tolist(), strict=True))
        ],
        labels=labels,
        class_names=tuple(f"topic {k:03d}" for k in range(CLASSES)),
        indptr=indptr,
        indices=indices,
        split=np.zeros(nodes, np.uint8),
        provenance={"made up": f"{nodes} nodes, {edges_per_node} edges each, seed {seed}"},
        site=names[site],
    )


def _planted(community: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    """Return each node's client: whole communities, in order, up to equal shares of the nodes.

    Clients of fewer than two mean communities have equal shares, and parts of communities.
    """
    if len(community) < 2 * COMMUNITY * clients:
        place = np.empty(len(community), np.int64)
        place[np.argsort(community, kind="stable")] = np.arange(len(community))
        return place * clients // len(community)
    sizes = np.bincount(community)
    middle = np.cumsum(sizes) - sizes / 2
    share = np.minimum((middle * clients / len(community)).astype(np.int64), clients - 1)
    return share[community]


def _topics(
    community: NDArray[np.int64], site: NDArray[np.int64], draw: np.random.Generator
) -> NDArray[np.int64]:
    """Return each node's topic: one per community, by a mixture of its client, Dirichlet(1)."""
    first = np.unique(community, return_index=True)[1]
    mixtures = draw.dirichlet(np.ones(CLASSES), int(site.max()) + 1).cumsum(axis=1)
    topics = np.zeros(int(community.max()) + 1, np.int64)
    below = mixtures[site[first]] < draw.random((len(first), 1))
    topics[community[first]] = np.minimum(below.sum(axis=1), CLASSES - 1)
    return topics[community]


def make_clients(
    folder: Path,
    nodes: int,
    clients: int,
    seed: int = 0,
    dim: int = 384,
    edges_per_node: int = 10,
) -> dict[str, Any]:
    """Write a folder with `manifest.json` and `client-K/` for each client; return the manifest.

    Parameters
    ----------
    folder : must be absent or empty
    nodes : of all clients together
    dim : width of the embeddings
    """
    check_out(folder / "manifest.json", "folder")
    if found := sorted(path.name for path in folder.glob("*")):
        raise UserError(
            f"{folder}: expected a folder that is new or empty, found {found[-1]} in it; choose "
            "another folder, or delete this one"
        )
    graph = make_graph(nodes, clients, seed, edges_per_node)
    spec = PartitionSpec("by-column", clients, seed, 1.0, 0.6, 0.2, 0.2)
    partition = make_partition(graph, spec)
    content = manifest(graph, partition)
    bank: Any = MadeUpBank(seed, dim)
    write_partition(graph, partition, content, folder, bank)
    return content


def nodes_of(folder: Path, clients: int) -> dict[int, dict[str, Any]]:
    """Return a node configuration per client of a folder, each with the path of its data."""
    from dance_flwr.federation.wire import keys

    return {
        number + 1: {
            keys.PARTITION_ID: number,
            keys.NUM_PARTITIONS: clients,
            keys.DATA_PATH: str(folder / f"client-{number}"),
        }
        for number in range(clients)
    }


def run_clients(folder: Path, out: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a federation in this process on the clients of a folder; return its result.

    Every round prints the cost since the line before, and so does the final evaluation. Where the
    next training validates a round, the first line has two trainings, the last one none.

    Parameters
    ----------
    out : folder of the run
    values : keys of the configuration; `clients` is that of the folder
    """
    from dance_flwr.data.prepare import partition_folder
    from dance_flwr.runs.simulation.in_process import run_in_process

    # The folder takes the place of a partition of `pydocs`, whose data a run does not read then.
    place = {"data": "pydocs", "partition": "by-column", "data-root": str(out.with_name("root"))}
    clients = len(check(folder)["clients"])
    config = parse({**values, **place, "clients": clients, "out": str(out)})
    partition = partition_folder(config)
    partition.parent.mkdir(parents=True, exist_ok=True)
    if not partition.exists():
        partition.symlink_to(folder.resolve())
    before = time.perf_counter(), time.process_time()

    def show(what: str) -> None:
        nonlocal before
        now = time.perf_counter(), time.process_time()
        wall, cpu = (a - b for a, b in zip(now, before, strict=True))
        print(f"{what}: {wall:.2f} s, {cpu:.2f} s of CPU", flush=True)
        before = now

    result = run_in_process(config, out, lambda row: show(f"round {row['round']}"))
    show("final evaluation")
    return result


def main() -> None:
    """Write the clients, or run a federation on them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dim", type=int, default=384, help="width of the embeddings")
    parser.add_argument("--run", nargs="*", metavar="KEY=VALUE", help="train on the folders")
    options = parser.parse_args()
    try:
        measured(options)
    except UserError as error:
        sys.exit(f"error: {error}")


def measured(options: argparse.Namespace) -> None:
    """Do what was asked, and print what it took."""
    start = time.perf_counter()
    if options.run is None:
        content = make_clients(
            options.folder, options.nodes, options.clients, options.seed, options.dim
        )
        sizes = [client["nodes"] for client in content["clients"]]
        print(
            f"{content['num_nodes']:,} nodes, {content['num_edges']:,} edges, "
            f"{content['ratio_of_edges_kept']:.1%} of them kept, clients of {min(sizes):,} to "
            f"{max(sizes):,} nodes"
        )
    else:
        run_clients(options.folder, options.folder / "run", read_values([], options.run))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"{time.perf_counter() - start:.1f} s, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
