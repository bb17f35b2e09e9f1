"""Seconds per training round with everything cached, one thread, in process, without validation; by phase.

Each method runs in turn in one process, so that their ratio holds on a noisy machine.

    python benchmarks/rounds.py --config configs/cora.toml --set data=FOLDER
"""

import argparse
import statistics
from dataclasses import replace

from common import configured, result_of


def main() -> None:
    """Print the median round of each method, its phases, and the ratio to FedAvg on full graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", default=[], help="TOML file; later files win")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs")
    parser.add_argument("--rounds", type=int, default=40, help="rounds per run; the first five are left out")
    arguments = parser.parse_args()
    base = configured(arguments.config, arguments.pairs, 0)
    base = replace(base, rounds=arguments.rounds, evaluate_every=arguments.rounds, torch_threads=1)
    medians = {}
    for method in ("fedavg-full", "dance"):
        history = result_of(replace(base, method=method))["history"][5:]
        medians[method] = statistics.median(row["train_seconds"] for row in history)
        print(f"{method:12s} {medians[method]:.4f} s per round of {base.clients} clients (median of {len(history)})")
        for phase in history[0]["seconds"]:
            print(f"    {phase:10s} {statistics.median(row['seconds'][phase] for row in history):.4f} s")
    print(f"dance / fedavg-full = {medians['dance'] / medians['fedavg-full']:.2f}")


if __name__ == "__main__":
    main()
