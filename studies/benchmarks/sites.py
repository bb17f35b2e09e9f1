"""Make the pages of what left a site, of a deployed run under masks and of one under noise as well.

    python studies/benchmarks/sites.py FOLDER [--data pydocs] [--rounds 3]

The nodes of a graph are dealt to three sites, which join over loopback as on separate machines:
SuperLink behind nginx, TLS, node keys, masks. Each run leaves in FOLDER the signed page of a site,
RUN-north.html, and the page of the server's report, RUN-server.html; the transcript has the rest.
"""

import argparse
import sys
from pathlib import Path

from dance_flwr.data.imports.loading import load_graph

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.machines import SITES, Machines, found

# Three clients cannot afford a small epsilon: the model is of little use, and the site says so.
RUNS = {
    "masks": ["privacy.secure-aggregation=true"],
    "noise": [
        *("privacy.secure-aggregation=true", "privacy.dp=distributed"),
        *("privacy.epsilon=8", "privacy.delta=1e-3"),
    ],
}


def make_pages(folder: Path, data: str, rounds: int) -> None:
    """Run both, and write their pages."""
    folder.mkdir(parents=True)
    site, machines = SITES[0], Machines(folder / "machines", print)
    try:
        found(machines, load_graph(data), ["method=dance", f"rounds={rounds}"])
        for name, pairs in RUNS.items():
            page = str(machines.root.parent / f"{name}-{site}.html")
            sets = [word for pair in pairs for word in ("--set", pair)]
            machines.call("server", "deploy", "run", "--name", name, *sets)
            machines.call(site, "site", "privacy")
            machines.call(site, "site", "privacy", "--html", page)
            machines.call(site, "site", "privacy", "--verify", page)
            machines.call("server", "report", f"hospitals/runs/{name}", "--privacy")
    finally:
        machines.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="new folder")
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    make_pages(given.folder, given.data, given.rounds)
