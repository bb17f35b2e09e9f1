"""Does the meaning of class names help a trained model? Measured on validation nodes alone.

    python studies/benchmarks/class_names.py STUDY [--where labels-per-class=5] [--spelled DB=Databases ...]

For each finished run in STUDY/runs, the deployed prediction p of every client is multiplied by
q^lambda. q_v is a softmax of the cosines between t_v and the encoder's embeddings of the class
names, each less its mean over the client, averaged over two hops. lambda is chosen on every other
validation node of all clients and counted on the rest, then the other way round, so that no node
chooses for itself. Nothing is trained, and no test node is read. The same is done for every method:
what a control gains as well is no gain of DANCE.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from dance_flwr.api.prediction.tested import load_client
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.data.prepare import prepare
from dance_flwr.data.text.bank_slice import read_meta
from dance_flwr.data.text.encoder import TextEncoder, resolve_local
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.ragged import weighted_rows
from dance_flwr.runs.result import load_model

LAMBDAS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
TEMPERATURE = 0.05
PROBS = tuple[Tensor, Tensor, Tensor]  # p, q and labels of validation nodes


def main() -> int:
    """Print accuracy without and with class names, run by run of a group, and their difference."""
    options = _options()
    asked, spelled = _pairs(options.where), _pairs(options.spelled)
    found: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
    for run, result in _runs(options.study, asked):
        config = parse(result["config"])
        parts = [
            torch.cat(part) for part in zip(*_clients(run, result, config, spelled), strict=True)
        ]
        found[_group(result)].append(_accuracies(*parts))
    for group, rows in sorted(found.items()):
        gains = [with_names - without for without, with_names, _ in rows]
        spread = stdev(gains) if len(gains) > 1 else 0.0
        print(
            f"{', '.join(group)}: {mean(row[0] for row in rows):.2f} % without names, gain "
            f"{mean(gains):+.2f} ± {spread:.2f} over {len(rows)} runs; names alone "
            f"{mean(row[2] for row in rows):.2f} %"
        )
    return int(not found)


def _runs(study: Path, asked: Mapping[str, str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(study.glob("runs/*/result.json")):
        result = json.loads(path.read_text("utf-8"))
        if all(str(result["config"].get(key)) == value for key, value in asked.items()):
            yield path.parent, result


def _group(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return data, method, and which of these keys differ from the method's own values."""
    config = result["config"]
    keys: tuple[str, ...] = (
        "text-pooling",
        "edge-gates",
        "class-prior",
        "dance.core-rule",
        "dance.text-rule",
    )
    keys += ("dance.topology-rule", "dance.label-evidence", "rotating.supervised-ratio")
    usual = flatten(parse({"data": config["data"], "method": config["method"]}))
    other = [f"{key}={config[key]}" for key in keys if config.get(key) != usual.get(key)]
    return (Path(config["data"]).name, config["method"], *other)


def _clients(
    run: Path, result: Mapping[str, Any], config: RunConfig, spelled: Mapping[str, str]
) -> Iterator[PROBS]:
    """Yield p, q and labels of the validation nodes of each client."""
    weights, folder = load_model(run, str(result["model_fingerprint"])), prepare(config).folder
    for number in range(config.clients):
        with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
            client = load_client(folder / f"client-{number}", config, weights, Path(scratch))
            data = client.data
            nodes = torch.nonzero((data.split == VAL) & (data.labels >= 0)).flatten()
            info = RoundInfo(str(result["run"]), int(result["best_round"]), "", final=True)
            probs = client.predict(info, nodes)["deployed"]
            yield probs, _by_names(data, spelled)[nodes], data.labels[nodes]


def _by_names(data: ClientData, spelled: Mapping[str, str]) -> Tensor:
    """Return q of every node, [n, C]."""
    meta = read_meta(data.folder / "text")
    names = tuple(spelled.get(name, name) for name in data.card.class_names)
    encoder = (str(meta[key]) for key in ("encoder", "precision", "weights_sha256"))
    classes = _encoded(names, *encoder)
    texts = torch.nn.functional.normalize(data.features, dim=1)
    cosines = texts @ classes.T
    probs = torch.softmax((cosines - cosines.mean(0)) / TEMPERATURE, dim=1)
    rows = data.graph.rows
    ones = torch.ones_like(rows.index, dtype=probs.dtype)
    for _ in range(2):
        probs = (probs + weighted_rows(ones, rows, probs)) / (1 + rows.ptr.diff())[:, None]
    return probs


@cache
def _encoded(names: tuple[str, ...], encoder: str, precision: str, sha256: str) -> Tensor:
    model = TextEncoder.from_spec(resolve_local(encoder, precision, sha256))
    return torch.as_tensor(model.encode(names)).float()


def _accuracies(probs: Tensor, by_names: Tensor, labels: Tensor) -> tuple[float, float, float]:
    """Return the accuracy in % without names, with them, and of names alone."""
    even = torch.arange(len(labels)) % 2 == 0

    def hits(factor: float, nodes: Tensor) -> int:
        score = probs.clamp(min=1e-6).log() + factor * by_names.clamp(min=1e-3).log()
        return int((score.argmax(1) == labels)[nodes].sum())

    right = 0
    for chooses, counts in ((even, ~even), (~even, even)):
        right += hits(max(LAMBDAS, key=lambda factor: hits(factor, chooses)), counts)
    alone = int((by_names.argmax(1) == labels).sum())
    every = torch.ones_like(even)
    without, with_names, names = (
        100 * count / len(labels) for count in (hits(0.0, every), right, alone)
    )
    return without, with_names, names


def _pairs(words: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path, help="folder of a study with its runs")
    parser.add_argument("--where", nargs="*", default=[], metavar="KEY=VALUE", help="of these runs")
    parser.add_argument(
        "--spelled", nargs="*", default=[], metavar="NAME=WORDS", help="other words for class names"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
