"""What a client's round would launch on a GPU and wait for, counted on a CPU.

    python studies/benchmarks/launches.py FOLDER... [--methods dance fedavg-full] [--lines]
        [--rounds 3] [--set KEY=VALUE ...]

FOLDER holds clients as `dance-flwr partition` and `made_up.py` write them. Some rounds are run in
this process, and the counts are means per client over the last and its validation: the third trains
with what an earlier round has selected, the eleventh of DANCE condenses and selects. The operations
of epochs are counted apart, as a GPU replays them as one graph; kB are those that are copied to it
and back. `--lines` also lists the lines that wait. How an operation is counted:
`tests/support/card.py`.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import PROJECT
from dance_flwr.config.reading import read_config
from dance_flwr.config.tree import flatten, parse

COLUMNS = ("launches", "waits", "epoch_launches", "epoch_waits", "unordered", "mixed", "kB_moved")


def count(
    folder: Path, method: str, rounds: int, keys_and_values: list[str]
) -> dict[str, Counter[str]]:
    """Return what the clients of a folder counted in the last round, by column and name."""
    sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]
    from support.card import CountingApp

    import client_app
    import server_app
    from dance_flwr.federation.wire import keys
    from dance_flwr.runs.simulation.in_process import InProcessGrid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    clients, run = len(list(folder.glob("client-*"))), time.time_ns()
    chosen = [*keys_and_values, f"method={method}", f"rounds={rounds}"]
    flat = flatten(read_config([], chosen, {}))
    values: dict[str, Any] = {key: flat[key] for key, _, _ in (w.partition("=") for w in chosen)}
    nodes = {
        number + 1: {
            keys.PARTITION_ID: number,
            keys.NUM_PARTITIONS: clients,
            keys.DATA_PATH: str(folder.resolve() / f"client-{number}"),
        }
        for number in range(clients)
    }
    app = CountingApp(client_app.app)
    with tempfile.TemporaryDirectory() as out:
        config = parse({"data": "counted", **values, "clients": clients, "out": out})
        grid = InProcessGrid(app, flatten(config), nodes, run_id=run)
        try:
            server_app.run(grid, config, str(run), Path(out))
        finally:
            for left in folder.glob(f"client-*/runs/{run}"):
                shutil.rmtree(left)
    last = [counts for (round_, *_), counts in app.counts.items() if round_ == rounds]
    total = {name: sum((getattr(c, name) for c in last), Counter()) for name in COLUMNS[:-1]}
    total["kB_moved"] = Counter(all=sum(c.bytes_moved for c in last) / 1000)
    return {
        name: Counter({k: n / clients for k, n in counter.items()})
        for name, counter in total.items()
    }


def main() -> None:
    """Print a row per folder and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--methods", nargs="+", default=["dance", "fedavg-full"])
    parser.add_argument("--rounds", type=int, default=3, help="of which the last is counted")
    parser.add_argument("--lines", action="store_true", help="also the lines that wait")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    print(f"| clients | method | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 2)}")
    for folder in options.folders:
        for method in options.methods:
            counted = count(folder, method, options.rounds, options.set)
            numbers = " | ".join(f"{sum(counted[name].values()):.0f}" for name in COLUMNS)
            print(f"| {folder.name} | {method} | {numbers} |", flush=True)
            for name in ("waits", "epoch_waits") if options.lines else ():
                for line, times in counted[name].most_common():
                    print(f"    {times:6.1f} {name} {line}")


if __name__ == "__main__":
    main()
