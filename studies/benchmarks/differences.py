"""What a server learns of one client from two masked sums, of which one lacks that client.

    python studies/benchmarks/differences.py --data FOLDER_WITH_CORA [--seeds 0 1 2]

The whole app runs in this process, five clients under secure aggregation. The server decodes all
that the protocol gives it. It subtracts the sums of two validations, and those of two trainings
that start from one model (a round that is repeated), where client SEED modulo 5 is in the first
alone. For numbers, printed is the largest error of the client's histogram of labels; for updates,
the cosine of the difference and the client's own update: 1 is the update itself, and two
independent vectors have about 1 / sqrt(d).
"""

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from flwr.app import Context, Message
from numpy.typing import NDArray

import client_app
import server_app
from dance_flwr.config.tree import flatten, parse
from dance_flwr.errors import QuorumError
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey, SecAggStage
from dance_flwr.federation.secagg.request import SumOptions
from dance_flwr.federation.secagg.server import MaskedSum
from dance_flwr.federation.server.grid import SecureGrid
from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS = 5
App = Callable[[Message, Context], Message]
Vector = NDArray[np.float64]
Sums = list[tuple[dict[str, Any], Vector]]
MASKED = {"privacy.secure-aggregation": True}


@contextmanager
def decoding() -> Iterator[Sums]:
    """Collect (numbers, sum of updates) of every sum, whether the honest server reads them."""
    sums: Sums = []
    honest = SecureGrid._metrics

    def read(self: SecureGrid, total: MaskedSum, start: int, options: SumOptions) -> dict[str, Any]:
        decoded = total.metrics(start, options.form)
        sums.append((decoded, total.numbers[:start].astype(float)))
        return honest(self, total, start, options)

    SecureGrid._metrics = read  # type: ignore[method-assign]
    try:
        yield sums
    finally:
        SecureGrid._metrics = honest  # type: ignore[method-assign]


def leaving(client: int, at: int) -> App:
    """Return the ClientApp, with a client that is not in the sum of this number, from 0."""
    sums: list[int] = []

    def app(message: Message, context: Context) -> Message:
        stage = message.content.config_records.get(SECAGG_CONFIGS, {}).get(SecAggKey.STAGE)
        if context.node_config[keys.PARTITION_ID] == client and stage is not None:
            sums.extend([0] if stage == SecAggStage.SETUP else [])
            if len(sums) - 1 == at:
                raise ConnectionError("gone")
        return client_app.app(message, context)

    return app


def run(options: argparse.Namespace, app: App, seed: int, **more: Any) -> Sums:
    """Run a federation of two rounds; return its masked sums."""
    with tempfile.TemporaryDirectory() as name, decoding() as sums, suppress(QuorumError):
        values = {"data": options.data, "clients": CLIENTS, "rounds": 2, "seed": seed}
        values |= {"max-chunks": 16, "method": "fedavg-full", "out": name, **more}
        config = parse(values)
        grid = InProcessGrid(app, flatten(config), CLIENTS)  # type: ignore[arg-type]
        server_app.run(grid, config, uuid4().hex, Path(name))  # a name has one budget
    return sums


def own_values(options: argparse.Namespace, seed: int) -> tuple[Vector, Vector]:
    """Return the client's label counts of validation and its first update, without masks."""
    counts, updates = [], []

    def app(message: Message, context: Context) -> Message:
        kind, reply = message.metadata.message_type, client_app.app(message, context)
        if context.node_config[keys.PARTITION_ID] == seed % CLIENTS:
            if kind == keys.EVALUATE:
                counts.append(messages.metrics_of(reply.content)["val-actual"])
            elif kind == keys.TRAIN:
                start, end = messages.model_of(message), messages.model_of(reply)
                parts = [(end[name] - start[name]).double().flatten() for name in start]
                updates.append(torch.cat(parts).numpy())
        return reply

    run(options, app, seed)
    return np.array(counts[0], float), updates[0]


def histogram_error(options: argparse.Namespace, seed: int) -> float:
    """Return the largest error of the label counts that two validations give."""
    sums = run(options, leaving(seed % CLIENTS, at=4), seed, **MASKED)
    first, second = (np.array(sums[place][0]["val-actual"], float) for place in (2, 4))
    return float(np.abs(first - second - own_values(options, seed)[0]).max())


def update_cosine(options: argparse.Namespace, seed: int, **more: Any) -> float:
    """Return the cosine of the difference of two sums of updates and the client's own update."""
    apps = (client_app.app, leaving(seed % CLIENTS, at=1))
    whole, fewer = (run(options, app, seed, **MASKED, **more)[1][1] for app in apps)
    difference, own = whole - fewer, own_values(options, seed)[1]
    return float(difference @ own / (np.linalg.norm(difference) * np.linalg.norm(own)))


def main() -> None:
    """Print a line per quantity."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data set, or folder of nodes.* and edges.*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    noise = {"privacy.dp": "distributed", "privacy.epsilon": 8.0}
    for text, measure in {
        "labels of the client, largest error of a count": histogram_error,
        "its update, cosine": update_cosine,
        "its update under distributed noise, epsilon 8, cosine": lambda *of: update_cosine(
            *of, **noise
        ),
    }.items():
        found = [measure(options, seed) for seed in options.seeds]
        each = " ".join(f"{value:.4g}" for value in found)
        print(f"{text:55s} {statistics.mean(found):10.4g}   {each}", flush=True)


if __name__ == "__main__":
    main()
