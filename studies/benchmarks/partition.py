"""Seconds and peak memory of importing, partitioning and writing a synthetic graph of n nodes and
10 n edges.

    python studies/benchmarks/partition.py [--sizes 10000 100000 1000000]

Each size runs in a fresh process.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

CLASSES = 20
COMMUNITY = 250  # mean nodes of a community
INSIDE = 0.8  # share of the draws that stay inside a community
TAIL = 2.5  # exponent of the degrees' power law
WORDS = 12  # words of a text


def synthetic_edges(
    n: int, edges: int, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (community [n], source [edges], target [edges]) of a degree-corrected block model,
    without duplicates.

    Community sizes are geometric-like around `COMMUNITY`; expected degrees follow a power law, cut
    at 1,000 times the least.
    """
    count = max(1, n // COMMUNITY)
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


def write_synthetic(folder: Path, n: int, edges: int, seed: int = 0) -> None:
    """Write `nodes.parquet` and `edges.parquet`; a text is `WORDS` words, half of them of the
    node's class.
    """
    rng = np.random.default_rng(seed)
    community, source, target = synthetic_edges(n, edges, rng)
    label = (community % CLASSES).astype(np.int64)
    vocabulary = pa.array([f"word{k:04d}" for k in range(50 * CLASSES)])
    own = label[:, None] * 50 + rng.integers(0, 50, (n, WORDS // 2))
    words = np.concatenate([own, rng.integers(0, 50 * CLASSES, (n, WORDS - WORDS // 2))], axis=1)
    columns = [vocabulary.take(pa.array(words[:, k])) for k in range(WORDS)]
    ids = pc.binary_join_element_wise("node", pa.array(np.arange(n)).cast(pa.string()), "-")
    nodes = {
        "id": ids,
        "text": pc.binary_join_element_wise(*columns, " "),
        "label": pa.array([f"class {k:02d}" for k in range(CLASSES)]).take(pa.array(label)),
    }
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    ends = {"source": ids.take(pa.array(source)), "target": ids.take(pa.array(target))}
    pq.write_table(pa.table(ends), folder / "edges.parquet")


def measure(n: int, edges_per_node: int, clients: int) -> dict[str, tuple[float, float]]:
    """Return seconds and peak GB of each step, in order."""
    steps: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as root:
        data = Path(root) / "data"
        data.mkdir()
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
            start = (
                time.perf_counter()
            )  # in another process: what it takes is no part of the pipeline
            other.submit(write_synthetic, data, n, edges_per_node * n).result()
            print(
                f"{n:>9,} nodes: generated in {time.perf_counter() - start:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        _pipeline(data, Path(root) / "clients", clients, steps)
    return steps


def _pipeline(data: Path, out: Path, clients: int, steps: dict[str, tuple[float, float]]) -> None:
    from dance_flwr.data.graphs.folder import read_folder, write_folder
    from dance_flwr.data.graphs.graph import TextGraph
    from dance_flwr.data.partition import PartitionSpec, client_nodes, make_partition, manifest

    with _step("import", steps):
        graph = read_folder(data)
    with _step("partition", steps):
        partition = make_partition(graph, PartitionSpec("louvain", clients, 0, 1.0, 0.6, 0.2, 0.2))
    with _step("manifest and report", steps):
        report = manifest(graph, partition)
    with _step("client folders", steps):
        whole = TextGraph(**vars(graph) | {"split": partition.split})
        for number in range(clients):
            local = whole.subgraph(client_nodes(partition, number), f"client-{number}")
            write_folder(local, out / f"client-{number}")
    sizes = [client["nodes"] for client in report["clients"]]
    print(
        f"{graph.num_nodes:>9,} nodes, {graph.num_edges:,} edges: "
        f"{report['ratio_of_edges_kept']:.1%} of the edges kept, clients of {min(sizes):,} to "
        f"{max(sizes):,} nodes",
        file=sys.stderr,
        flush=True,
    )


@contextmanager
def _step(name: str, steps: dict[str, tuple[float, float]]) -> Iterator[None]:
    """Time one step and find its own peak of resident memory where the kernel can reset it."""
    clear = Path("/proc/self/clear_refs")
    try:
        clear.write_text("5")  # resets VmHWM
    except OSError:
        clear = Path()
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status")
    if clear.name and status.is_file():
        peak = next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
    else:  # the peak of the whole process so far
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps[name] = (seconds, peak * 1024 / 1e9)


def main() -> None:
    """Print one row per size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="nodes"
    )
    parser.add_argument("--edges-per-node", type=int, default=10)
    parser.add_argument("--clients", type=int, default=50)
    options = parser.parse_args()
    for index, n in enumerate(options.sizes):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            steps = fresh.submit(measure, n, options.edges_per_node, options.clients).result()
        if not index:
            print(f"| nodes | edges | {' | '.join(steps)} | total | s per million edges |")
            print("|" + "---:|" * (len(steps) + 4))
        total, peak = sum(s for s, _ in steps.values()), max(gb for _, gb in steps.values())
        edges = n * options.edges_per_node
        cells = [f"{seconds:.1f} s, {gb:.2f} GB" for seconds, gb in steps.values()]
        cells += [f"{total:.1f} s, {peak:.2f} GB", f"{total / edges * 1e6:.1f}"]
        print(f"| {n:,} | {edges:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
