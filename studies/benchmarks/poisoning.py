"""Test accuracy where one client in five poisons its uploads, with and without bounds on them.

    python studies/benchmarks/poisoning.py --data FOLDER_WITH_CORA [--seeds 0 1 2] [--rounds 15]
    python studies/benchmarks/poisoning.py --data FOLDER_WITH_CORA --honest dance fedavg-full gcond

The whole app runs in this process. The poisoning client trains as the others do and uploads
omega - s (omega_k - omega) in the place of omega_k: its own update, turned round and s times as
long. That is a finite model of the right shapes, which is refused only where it is ten times as
long as the model. It counts its hits honestly. The client is number SEED modulo 5. Each line is
the mean and the sample standard deviation of the test accuracy over seeds, and the number of
uploads that were refused. `unbounded` is fedavg without a bound.

`--honest` instead prints how long the updates of honest clients are: at most, over all rounds and
settings, as a multiple of the median of their round, and of the client's own longest before.
"""

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

import client_app
import server_app
from dance_flwr.config.tree import flatten, parse
from dance_flwr.federation.server import checks
from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.result import read_result
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS = 5
STRATEGIES = ("fedavg", "fedmedian", "fedtrimmedavg")
SKEWED = {"partition": "label-dirichlet", "dirichlet-alpha": 0.1}
# What could make honest updates differ in length: skew, few labels, many clients, the optimiser.
SETTINGS: tuple[dict[str, Any], ...] = (
    *({}, SKEWED, {"labels-per-class": 2}, {"clients": 20}, {"clients": 20, "partition": "random"}),
    *(SKEWED | {"clients": 20, "labels-per-class": 5}, {"split-mode": "inductive"}),
    *({"sampling.batch-nodes": 64}, {"upload-precision": "int8"}, {"lr-schedule": "constant"}),
    *({"strategy": "fedprox", "proximal-mu": 1.0}, {"strategy": "fedadam"}, {"local-epochs": 1}),
    *({"local-epochs": 10}, {"learning-rate": 0.1}, {"backbone": "gat"}, {"backbone": "sgc"}),
    *({"backbone": "sage"}, {"clients": 10, "client-fraction": 0.5}),
)
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


def federate(app: App, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Run one federation in this process; return its result."""
    with tempfile.TemporaryDirectory() as folder:
        config = parse({"clients": CLIENTS, "max-chunks": 16, **values, "out": folder})
        grid = InProcessGrid(app, flatten(config), config.clients)  # type: ignore[arg-type]
        server_app.run(grid, config, f"poisoning-{name}", Path(folder))
        return read_result(Path(folder))


def accuracy(values: Mapping[str, Any], scale: float) -> tuple[float, int]:
    """Return the test accuracy with one poisoning client, in percent, and its refused uploads."""
    app = poisoning(int(values["seed"]) % CLIENTS, scale)
    name = f"{values['strategy']}-{scale:g}-{values['seed']}"
    result = federate(app, {"method": "fedavg-full", "evaluate-every": 5, **values}, name)
    return 100 * float(result["test_accuracy"]), sum(
        len(row["absent"]) for row in result["history"]
    )


@contextmanager
def unbounded() -> Iterator[None]:
    """Accept updates of any length in the block, up to what is refused as no update at all."""
    ratio, checks._MAX_RATIO = checks._MAX_RATIO, inf
    try:
        yield
    finally:
        checks._MAX_RATIO = ratio


def longest(values: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Return how long honest updates are, to the median of their round and to their own past."""
    ratios = [0.0, 0.0]
    bounds = checks.NormHistory.bounds

    def measured(history: checks.NormHistory, norms: Mapping[int, float]) -> dict[int, float]:
        moved = [norm for norm in norms.values() if norm]
        if len(moved) > 2:
            ratios[0] = max(ratios[0], max(moved) / statistics.median_low(moved))
        past = {k: norm for k, norm in norms.items() if k in history.longest}
        ratios[1] = max([ratios[1], *(norm / history.longest[k] for k, norm in past.items())])
        return bounds(history, norms)

    checks.NormHistory.bounds = measured  # type: ignore[method-assign]
    try:
        with unbounded():
            federate(client_app.app, values, name)
    finally:
        checks.NormHistory.bounds = bounds  # type: ignore[method-assign]
    return ratios[0], ratios[1]


def main() -> None:
    """Print a line per strategy and scale, or per method and setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data set, or folder of nodes.* and edges.*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    scales = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    parser.add_argument("--scales", type=float, nargs="+", default=scales, help="s; 0 = honest")
    parser.add_argument("--rounds", type=int, default=15)
    known = ("unbounded", *STRATEGIES)
    parser.add_argument("--strategies", nargs="+", choices=known, default=known)
    parser.add_argument("--honest", nargs="+", metavar="METHOD", help="lengths of honest updates")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    if options.honest:
        print(f"{'method':18s} {'to median':>9s} {'to own':>7s}  setting")
        for method in options.honest:
            for number, setting in enumerate(SETTINGS):
                fixed = {"data": options.data, "rounds": options.rounds, "method": method}
                ratios = longest({**fixed, **setting}, f"honest-{method}-{number}")
                print(f"{method:18s} {ratios[0]:9.2f} {ratios[1]:7.2f}  {setting}", flush=True)
        return
    print(f"{'strategy':14s} {'s':>4s} {'accuracy %':>12s} {'refused':>7s}  seeds")
    fixed = {"data": options.data, "rounds": options.rounds}
    for strategy, scale in product(options.strategies, options.scales):
        free = strategy == "unbounded"
        known = {"strategy": "fedavg" if free else strategy, **fixed}
        with unbounded() if free else nullcontext():
            runs = [accuracy(known | {"seed": seed}, scale) for seed in options.seeds]
        values = [value for value, _ in runs]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        each = " ".join(f"{value:.1f}" for value in values)
        cells = f"{statistics.mean(values):6.1f} ± {deviation:3.1f} {sum(n for _, n in runs):7d}"
        print(f"{strategy:14s} {scale:4g} {cells}  {each}", flush=True)


if __name__ == "__main__":
    main()
