"""Seconds of the costly baselines on Cora, compared with public implementations on one CPU thread.

    python studies/benchmarks/baselines.py [--rounds 100] [--fedtad-rounds 5] [--steps 500]

FedTAD: the server's step, by the run's own clock. FedSage+: processor seconds per round in all,
including the exchanges before round 1. Both with 10 clients, 20 % of the nodes for training, 40 %
each for validation and test. GCond: processor seconds of condensing all of Cora's 5 clients by
one-step matching. Clients answer one after the other in this process, on one thread; data
preparation is not included. Other work on the machine increases all of these, also processor
seconds, as it uses memory bandwidth.

References: OpenFGL's FedTAD and FedSage+ in the same setting, measured as 10 s and 1.97 s on the
same thread; GCond's one-step mode with its own steps takes minutes, 300 s. The fewer `--rounds`,
the more the exchanges weigh.
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
from dance_flwr_rivals.condensation.client import GCond

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import open_client
from dance_flwr.runs.simulation.in_process import run_in_process

TEN: dict[str, Value] = {"clients": 10, "train-ratio": 0.2, "val-ratio": 0.4, "test-ratio": 0.4}
FEDTAD, FEDSAGE, GCOND = 10.0, 1.97, 300.0  # references, seconds


def config_of(method: str, **keys: Value) -> RunConfig:
    """Return the configuration of a method on Cora."""
    return parse({"data": "cora", "method": method, "device": "cpu", "torch-threads": 1, **keys})


def timed_run(config: RunConfig) -> tuple[float, list[Mapping[str, Any]]]:
    """Return the processor seconds of a run, and its history."""
    prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        result = run_in_process(config, Path(folder), lambda row: None)
        return time.process_time() - start, result["history"]


def of_fedtad(rounds: int) -> float:
    """Return the server's seconds per round."""
    _, history = timed_run(config_of("fedtad", rounds=rounds, **TEN))
    return mean(row["seconds"]["distil"] for row in history)


def of_fedsage(rounds: int) -> float:
    """Return the seconds per round, exchanges included."""
    seconds, _ = timed_run(config_of("fedsage", rounds=rounds, **TEN))
    return seconds / rounds


def of_gcond(steps: int) -> float:
    """Return the seconds of condensing every client once, one after the other."""
    config = config_of("gcond", **{"condense.steps": steps})
    folder, seconds = prepare(config).folder, 0.0
    for number in range(config.clients):
        data = open_client(folder / f"client-{number}", config, torch.device("cpu")).data
        start = time.process_time()
        GCond().arrays(data, config)
        seconds += time.process_time() - start
    return seconds


def main() -> None:
    """Print a line per method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100, help="of FedSage+")
    parser.add_argument("--fedtad-rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500, help="of GCond's matching")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{'':<8} {'seconds':>8} {'reference':>10} {'times faster':>13}  what")
    for name, seconds, reference, what in (
        (
            "fedtad",
            of_fedtad(options.fedtad_rounds),
            FEDTAD,
            f"server's step, mean of {options.fedtad_rounds} rounds",
        ),
        (
            "fedsage",
            of_fedsage(options.rounds),
            FEDSAGE,
            f"round with exchanges, mean of {options.rounds} rounds",
        ),
        (
            "gcond",
            of_gcond(options.steps),
            GCOND,
            f"5 clients condensed, {options.steps} one-step matches each",
        ),
    ):
        print(
            f"{name:<8} {seconds:>8.2f} {reference:>10.2f} {reference / seconds:>13.1f}  {what}",
            flush=True,
        )


if __name__ == "__main__":
    main()
