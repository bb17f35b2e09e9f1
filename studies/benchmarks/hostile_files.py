"""Peak memory and seconds of reading small files that describe large graphs, and the messages.

    python studies/benchmarks/hostile_files.py [--bounds memory=16e6,characters=1e6] [--only gexf]

The files are those of the tests (`tests/support/bombs.py`, `tests/redteam/test_network_files.py`).
Each is read as `dance-flwr data import` reads it, in a process of its own, whose peak is printed
without what reading a graph of three nodes takes. Without `--bounds` the usual bounds hold.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))

from redteam.test_data_files import small_files  # noqa: E402
from redteam.test_network_files import NETWORKS  # noqa: E402
from support.bombs import BOMBS  # noqa: E402
from support.measuring import watching  # noqa: E402

from dance_flwr.data.graphs.limits import VARIABLE  # noqa: E402
from dance_flwr.data.imports.importer import import_graph  # noqa: E402
from dance_flwr.errors import UserError  # noqa: E402


def read(file: Path, name: str, root: Path) -> tuple[int, float, str]:
    """Return the peak of the reading process in bytes, the seconds, and the message in one line."""
    start, line = time.perf_counter(), "read"
    with watching() as seen:
        try:
            import_graph([file], name, root)
        except UserError as error:
            line = str(error).replace(str(file), file.name).replace(str(file.parent), "FOLDER")
    return seen["peak"], time.perf_counter() - start, line


def main() -> None:
    """Print a table in Markdown, a row per file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bounds", default="", help=f"value of {VARIABLE}")
    parser.add_argument("--only", default="", help="files whose name contains this")
    options = parser.parse_args()
    os.environ[VARIABLE] = options.bounds
    warnings.simplefilter("ignore")
    print("| file | bytes | peak, MB | seconds | message |\n| --- | ---: | ---: | ---: | --- |")
    for name, make in {**BOMBS, **NETWORKS}.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            (folder / "bomb").mkdir()
            made = make(folder / "bomb")
            small = small_files(folder / "small")["pt" if made.suffix == ".pt" else "csv"]
            usual, *_ = read(small, "small", folder)
            peak, seconds, line = read(made, "ogbn-arxiv" if "ogbn" in name else "g", folder)
            files = made.rglob("*") if made.is_dir() else [made]
            size = sum(each.stat().st_size for each in files if each.is_file())
        print(f"| {name} | {size:,} | {(peak - usual) / 1e6:.0f} | {seconds:.1f} | {line} |")


if __name__ == "__main__":
    main()
