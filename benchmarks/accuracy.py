"""Accuracy over seeds, in process: mean and standard deviation of the test accuracy at the best validation round.

python benchmarks/accuracy.py --config configs/cora.toml --set data=FOLDER --seeds 0 1 2
"""

import argparse
import statistics
import sys

from common import configured, result_of
from tqdm import tqdm


def main() -> None:
    """Print one line per seed and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", default=[], help="TOML file; later files win")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    rows = []
    for seed in tqdm(arguments.seeds, unit="run", file=sys.stderr):
        result = result_of(configured(arguments.config, arguments.pairs, seed))
        rows.append(result)
        scores = "  ".join(f"{name} {100 * result[name]:.2f}" for name in NAMES)
        seconds = result["seconds_per_round"]
        print(f"seed {seed}  {scores}  best round {result['best_round']}  {seconds:.3f} s/round", flush=True)
    for name in NAMES:
        values = [100 * row[name] for row in rows]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name:14s} {statistics.mean(values):.2f} +- {spread:.2f} over {len(values)} seeds")


NAMES = ("test_accuracy", "val_accuracy", "test_macro_f1")

if __name__ == "__main__":
    main()
