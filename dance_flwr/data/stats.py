"""Counts of graphs that institutions can add up before they decide to train together."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dance_flwr.data.imports.loading import load_graph
from dance_flwr.errors import UserError

SECTIONS = ("sizes", "classes", "degrees", "characters")
CHARACTERS = 64  # width of the first bin of lengths
Stats = dict[str, Counter[str]]  # by section: name or lower end of a bin -> number


def stats_of(folder: Path) -> Stats:
    """Count a folder's nodes, by degree in bins of 0, 1, 2-3, .., by characters 0-63, 64-127, .."""
    # A folder that is there, whatever graph has its name; else a graph of this name.
    graph = load_graph(str(folder.resolve() if folder.exists() else folder))
    degrees, labels = np.diff(graph.indptr), graph.labels[graph.labels >= 0]
    sizes = {"folders": 1, "nodes": graph.num_nodes, "edges": int(degrees.sum()) // 2}
    counted = np.bincount(labels, minlength=len(graph.class_names)).tolist()
    return {
        "sizes": Counter(sizes | {"unlabelled": graph.num_nodes - len(labels)}),
        "classes": Counter(dict(zip(graph.class_names, counted, strict=True))),
        "degrees": _by_bin(degrees.tolist(), 1),
        "characters": _by_bin(map(len, graph.texts), CHARACTERS),
    }


def _by_bin(values: Iterable[int], unit: int) -> Counter[str]:
    starts = Counter((1 << (value // unit).bit_length()) // 2 * unit for value in values)
    return Counter({str(start): starts[start] for start in sorted(starts)})


def summed(sources: Iterable[Path]) -> Stats:
    """Return the sum over folders, partitions of client folders, and files of such sums."""
    total: Stats = {section: Counter() for section in SECTIONS}
    for source in sources:
        folders = sorted(source.glob("client-*")) or [source]
        for part in [_read(source)] if source.is_file() else map(stats_of, folders):
            for section in SECTIONS:
                total[section].update(part[section])
    return total


def lines_of(stats: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Say what was counted, a line for each section."""
    return [
        f"{section:<11} {', '.join(f'{name}: {count:,}' for name, count in counts.items())}"
        for section, counts in stats.items()
    ]


def _read(path: Path) -> Stats:
    try:
        content = json.loads(path.read_text("utf-8"))
        # A file comes from another institution.
        numbers = [number for section in SECTIONS for number in content[section].values()]
        if content.keys() != {*SECTIONS} or any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError("other entries, or counts that are no whole numbers")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected counts that `dance-flwr data show --out` wrote, found {error}"
        ) from None
    return {section: Counter(content[section]) for section in SECTIONS}
