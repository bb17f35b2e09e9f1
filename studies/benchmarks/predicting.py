"""Memory and seconds of `dance-flwr predict` on a made-up graph whose texts are encoded.

    python studies/benchmarks/predicting.py FOLDER [--nodes 1000000] [--evidence]

FOLDER is filled by `made_up.py` with one client, on which one round of DANCE is trained and
exported first. The prediction then runs in a fresh process. Anonymous memory is what the process
holds of its own; pages of mapped files come back to the system when it needs them. The bar is 4 GB.
"""

import argparse
import sys
import time
from pathlib import Path

from dance_flwr_studies.protocols.complexity.growth import in_fresh_process, peak_memory
from made_up import make_clients, run_clients

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.prediction_table import predict
from dance_flwr.data.card import read_card

BAR_BYTES = 4e9


def main() -> int:
    """Prepare what is missing, predict in a process of its own, and print what it took."""
    options = _options()
    bundle, client = options.folder / "bundle", options.folder / "client-0"
    if not client.is_dir():
        make_clients(options.folder, options.nodes, 1, 0)
    if not bundle.is_dir():
        run = options.folder / "run"
        run_clients(options.folder, run, {"rounds": 1, "clients": 1, "dance.batch-nodes": 256})
        export(run, bundle, client)
    nodes, seconds, peak = in_fresh_process(_measure, bundle, client, options.evidence)
    print(
        f"{nodes:,} nodes in {seconds:.0f} s, {nodes / seconds:,.0f} nodes/s, peak "
        f"{peak / 1e9:.2f} GB of anonymous memory; at most {BAR_BYTES / 1e9:g}"
    )
    return int(peak > BAR_BYTES)


def _measure(bundle: Path, client: Path, evidence: bool) -> tuple[int, float, int]:
    """Return the nodes, the seconds and the peak bytes of a prediction."""
    table, lines = bundle.parent / "predictions.parquet", bundle.parent / "evidence.jsonl"
    for old in (table, lines):
        old.unlink(missing_ok=True)
    start, opened = time.perf_counter(), Bundle.open(bundle)
    with peak_memory() as most:
        predict(opened, str(client), table, lines if evidence else None)
    seconds = time.perf_counter() - start
    return read_card(client).num_nodes, seconds, most[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="new, or of an earlier call")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--evidence", action="store_true", help="write evidence of every node, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
