"""Seconds of the costly baselines on Cora, beside those of public implementations on one CPU
thread.

    python benchmarks/baselines.py [--rounds 100] [--fedtad-rounds 5] [--steps 500]

FedTAD: its server's step, by the run's own clock. FedSage+: processor seconds per round of
everything, the exchanges before round 1 included. Both with 10 clients, 20 % of the nodes for
training, 40 % each for validation and test. GCond: processor seconds of condensing all of Cora's 5
clients by one-step matching. Clients answer one after the other in this process, on one thread;
preparing data is not in it. Other work on the machine makes all of these longer, also processor
seconds: it takes of the memory's bandwidth.

References: OpenFGL's FedTAD and FedSage+ in the same setting, 10 s and 1.97 s as measured here;
GCond's one-step mode takes minutes by its own steps, 300 s. With fewer `--rounds` the exchanges
weigh more.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import open_client
from dance_flwr.methods.gcond.client import GCond
from dance_flwr.simulation.engine import run_in_process

TEN: dict[str, Value] = {"clients": 10, "train-ratio": 0.2, "val-ratio": 0.4, "test-ratio": 0.4}
FEDTAD, FEDSAGE, GCOND = 10.0, 1.97, 300.0  # references, seconds


def config_of(method: str, **keys: Value) -> RunConfig:
    """Return the configuration of a method on Cora."""
    return parse({"data": "cora", "method": method, "device": "cpu", "torch-threads": 1, **keys})


def ran(config: RunConfig) -> tuple[float, list[Mapping[str, Any]]]:
    """Return the processor seconds of a run, and its history."""
    prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        result = run_in_process(config, Path(folder), lambda row: None)
        return time.process_time() - start, result["history"]


def of_fedtad(rounds: int) -> float:
    """Return the server's seconds per round."""
    _, history = ran(config_of("fedtad", rounds=rounds, **TEN))
    return mean(row["seconds"]["distil"] for row in history)


def of_fedsage(rounds: int) -> float:
    """Return the seconds per round, exchanges included."""
    taken, _ = ran(config_of("fedsage", rounds=rounds, **TEN))
    return taken / rounds


def of_gcond(steps: int) -> float:
    """Return the seconds of condensing every client once, one after the other."""
    config = config_of("gcond", **{"condense.steps": steps})
    folder, taken = prepare(config).folder, 0.0
    for number in range(config.clients):
        site = open_client(folder / f"client-{number}", config, torch.device("cpu")).site
        start = time.process_time()
        GCond().arrays(site, config)
        taken += time.process_time() - start
    return taken


def main() -> None:
    """Print a line per method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100, help="of FedSage+")
    parser.add_argument("--fedtad-rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500, help="of GCond's matching")
    wanted = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{'':<8} {'seconds':>8} {'reference':>10} {'times faster':>13}  what")
    for name, found, reference, what in (
        (
            "fedtad",
            of_fedtad(wanted.fedtad_rounds),
            FEDTAD,
            f"server's step, mean of {wanted.fedtad_rounds} rounds",
        ),
        (
            "fedsage",
            of_fedsage(wanted.rounds),
            FEDSAGE,
            f"round with exchanges, mean of {wanted.rounds} rounds",
        ),
        (
            "gcond",
            of_gcond(wanted.steps),
            GCOND,
            f"5 clients condensed, {wanted.steps} one-step matches each",
        ),
    ):
        print(
            f"{name:<8} {found:>8.2f} {reference:>10.2f} {reference / found:>13.1f}  {what}",
            flush=True,
        )


if __name__ == "__main__":
    main()
