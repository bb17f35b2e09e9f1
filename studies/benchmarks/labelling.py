"""Which texts to label first: fifty are chosen without labels, then labelled, and trained on.

    python studies/benchmarks/labelling.py FOLDER_WITH_CORA FOLDER_WITH_CITESEER [--seeds 5 6 7]

Five institutions hold a part of the graph each, and hide the labels of their training nodes. Each
chooses ten of these by one rule, labels them, and the five train FedAvg that reads texts and edges
as DANCE does, on these fifty labels; the last model is tested. Classes are not known before, so no
rule reads them. Rules: `coverage` is `condense(graph, texts=10)` of the unlabelled graph; `random`;
`k-means` takes the text nearest to each of ten centres; `degree` the nodes with most edges. Prints
means and deviations over seeds, and coverage minus each other rule, paired by seed, with the
interval of the corrected t-test of the studies.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from dance_flwr_studies.engine.cells import Row, base_values
from dance_flwr_studies.protocols.primary import READS, SEEDS, VARIANTS
from dance_flwr_studies.protocols.variants import BY_SITE, find
from dance_flwr_studies.reports.sections import accuracy, beside, named
from dance_flwr_studies.reports.significance import paired_test
from dance_flwr_studies.reports.tables import Group, by_label, groups
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dance_flwr.api import TextGraph, condense, encode, federate
from dance_flwr.config.options import Value
from dance_flwr.config.tree import parse
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.graphs.graph import NO_SPLIT, TRAIN
from dance_flwr.data.prepare import prepare

CLIENTS = 5
Nodes = NDArray[np.int64]
Keys = Mapping[str, Value]


def _coverage(graph: TextGraph, pool: Nodes, count: int, seed: int, keys: Keys) -> Nodes:
    blind = replace(graph, labels=np.full_like(graph.labels, -1))
    reading = {"encoder", "max-chunks", "chunk-tokens"} & keys.keys()
    config = {key: keys[key] for key in reading}
    return condense(blind, texts=count, config=config, seed=seed).nodes.numpy()


def _random(graph: TextGraph, pool: Nodes, count: int, seed: int, keys: Keys) -> Nodes:
    return np.random.default_rng(seed).choice(pool, count, replace=False)


def _k_means(graph: TextGraph, pool: Nodes, count: int, seed: int, keys: Keys) -> Nodes:
    texts = encode(graph, config={"max-chunks": keys.get("max-chunks", 8)}).numpy()[pool]
    distance = KMeans(count, n_init=3, random_state=seed).fit(texts).transform(texts)
    chosen: list[int] = []
    for centre in distance.T:  # the nearest text that no other centre has
        chosen.append(next(int(row) for row in centre.argsort() if int(row) not in chosen))
    return pool[chosen]


def _degree(graph: TextGraph, pool: Nodes, count: int, seed: int, keys: Keys) -> Nodes:
    degrees = np.diff(graph.indptr)[pool]
    return pool[np.lexsort((np.random.default_rng(seed).random(len(pool)), -degrees))[:count]]


RULES: Mapping[str, Callable[[TextGraph, Nodes, int, int, Keys], Nodes]] = {
    "coverage": _coverage,
    "random": _random,
    "k-means": _k_means,
    "degree": _degree,
}


def labelled(graph: TextGraph, chosen: Nodes) -> TextGraph:
    """Return the graph with the training labels of the chosen nodes alone."""
    split, labels = graph.split.copy(), graph.labels.copy()
    hidden = np.setdiff1d(np.flatnonzero(split == TRAIN), chosen)
    split[hidden], labels[hidden] = NO_SPLIT, -1
    return replace(graph, split=split, labels=labels)


def measure(data: str, seed: int, texts: int, rounds: int, rules: Sequence[str]) -> list[Row]:
    """Return a row per rule: accuracy, macro-F1 and number of classes among the texts."""
    name = Path(data).name
    keys: dict[str, Value] = {**base_values(name), **BY_SITE.get(name, {}), "data": data}
    keys |= {"seed": seed, "clients": CLIENTS}
    folder = prepare(parse({**keys, "method": "fedavg-full"}), print).folder
    parts = [read_folder(folder / f"client-{client}") for client in range(CLIENTS)]
    method, reading = VARIANTS[READS]
    shared = ("max-chunks", "local-epochs", "ema-decay")
    kept = {key: value for key, value in keys.items() if key in shared}
    kept |= {"rounds": rounds, "evaluate-every": rounds}
    rows: list[Row] = []
    for rule in rules:
        chosen = [
            RULES[rule](part, np.flatnonzero(part.split == TRAIN), texts // CLIENTS, seed, keys)
            for part in parts
        ]
        graphs = [labelled(part, nodes) for part, nodes in zip(parts, chosen, strict=True)]
        found = np.concatenate([p.labels[c] for p, c in zip(parts, chosen, strict=True)])
        with TemporaryDirectory() as out:
            config = {**kept, **reading, "seed": seed}
            result = federate(graphs, config, method=method, out=f"{out}/run", progress=False)
        row = Row(
            "labelling",
            {"dataset": name, "seed": seed, "rule": rule},
            # Of the labelled nodes; the corrected test takes the shares of the split.
            config={"test-ratio": 0.2, "train-ratio": 0.6},
            result={
                "test_accuracy": result.test_accuracy,
                "macro-F1": result.test_macro_f1,
                "classes": len(np.unique(found)),
            },
        )
        rows.append(row)
        print(json.dumps({**row.labels, **row.result}), flush=True)
    return rows


def tables(rows: Sequence[Row]) -> str:
    """Return means by rule and data set, and the differences of coverage from the others."""
    values = {
        "accuracy %": accuracy,
        "macro-F1 %": lambda group, _: group.stat("macro-F1").percent,
        "classes found": lambda group, _: group.stat("classes").text(),
        "coverage minus it, points": _difference,
    }
    return beside(by_label(groups(rows), "dataset"), {"rule": named("rule")}, values)


def _difference(group: Group, compared: Sequence[Group]) -> str:
    coverage = find(compared, rule="coverage")
    if coverage is None or coverage is group:
        return ""
    mine, other = (side.by_seed("test_accuracy") for side in (coverage, group))
    signs = [mine[seed] > other[seed] for seed in mine.keys() & other.keys()]
    test = paired_test(coverage, group)
    return f"{test.interval_text}, {sum(signs)} of {len(signs)} seeds"


def main() -> None:
    """Measure, print a row per run and the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="+", help="folders of graphs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--texts", type=int, default=50, help="of all institutions together")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    options = parser.parse_args()
    rows = [
        row
        for data in options.data
        for seed in options.seeds
        for row in measure(data, seed, options.texts, options.rounds, options.rules)
    ]
    print(tables(rows))


if __name__ == "__main__":
    main()
