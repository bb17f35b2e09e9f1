"""Test accuracy where one client in five poisons its uploads, by strategy.

    python benchmarks/poisoning.py --data FOLDER_WITH_CORA [--seeds 0 1 2] [--rounds 15]

The whole app runs in this process. The poisoning client trains as the others do and uploads
omega - s (omega_k - omega) in the place of omega_k: its own update, turned round and s times as
long. That is a finite model of the right shapes within the server's bound on the norm, so no check
of replies refuses it. It counts its hits honestly. The client is number SEED modulo 5. Each line
is the mean and the sample standard deviation of the test accuracy over seeds.
"""

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message

import client_app
import server_app
from dance_flwr.config.tree import flatten, parse
from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS = 5
STRATEGIES = ("fedavg", "fedmedian", "fedtrimmedavg")
App = Callable[[Message, Context], Message]


def poisoning(victim: int, scale: float) -> App:
    """Return the ClientApp, with a client that turns its updates round; a scale of 0 is honest."""

    def app(message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        own = context.node_config[keys.PARTITION_ID] == victim
        if not (scale and own and message.metadata.message_type == keys.TRAIN):
            return reply
        start, state = messages.model_of(message), messages.model_of(reply)
        turned = {
            name: (start[name] - scale * (tensor - start[name])).to(tensor.dtype)
            for name, tensor in state.items()
        }
        return messages.with_arrays(reply, messages.arrays_of(turned))

    return app


def accuracy(options: argparse.Namespace, strategy: str, scale: float, seed: int) -> float:
    """Run one federation; return its test accuracy."""
    with tempfile.TemporaryDirectory() as name:
        values = {"data": options.data, "clients": CLIENTS, "rounds": options.rounds, "seed": seed}
        values |= {"max-chunks": 16, "evaluate-every": 5, "method": "fedavg-full"}
        config = parse(values | {"strategy": strategy, "out": name})
        app = poisoning(seed % CLIENTS, scale)
        grid = InProcessGrid(app, flatten(config), CLIENTS)  # type: ignore[arg-type]
        server_app.run(grid, config, f"poisoning-{strategy}-{scale:g}-{seed}", Path(name))
        result = read_result(Path(name))
        assert not any(row["absent"] for row in result["history"]), "an upload was refused"
        return float(result["test_accuracy"])


def main() -> None:
    """Print a line per strategy and scale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data set, or folder of nodes.* and edges.*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scales", type=float, nargs="+", default=[0, 1, 5], help="s; 0 = honest")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{'strategy':14s} {'s':>4s} {'accuracy %':>12s}  seeds")
    for strategy in STRATEGIES:
        for scale in options.scales:
            found = [100 * accuracy(options, strategy, scale, seed) for seed in options.seeds]
            deviation = statistics.stdev(found) if len(found) > 1 else 0.0
            each = " ".join(f"{value:.1f}" for value in found)
            mean = statistics.mean(found)
            print(f"{strategy:14s} {scale:4g} {mean:6.1f} ± {deviation:3.1f}  {each}", flush=True)


if __name__ == "__main__":
    main()
