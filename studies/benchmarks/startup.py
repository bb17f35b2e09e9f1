"""Processor seconds that a ClientApp takes before it computes, started by Flower and forked.

    python studies/benchmarks/startup.py [--repeats 5]

Started by Flower: `flwr-clientapp` with the imports of the app, up to the first optimiser of a
TRAIN message. Forked: the same in a child of `dance_flwr/deploy/prefork.py`, with the comparison of
the bundle. The comparison is also measured alone, for the bundle of this release and for one in
which every file differs in a comment. Medians of the repeats.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from flwr.cli.build import build_fab_from_disk

from dance_flwr.config.paths import PROJECT
from dance_flwr.deploy import prefork
from dance_flwr.deploy.bundle import submitted_app

TORCH = "import torch"
WORK = (
    "from dance_flwr.methods import get_spec; get_spec('dance').make_client(); "
    "import torch; torch.optim.Adam([torch.zeros(1, requires_grad=True)])"
)
COLD = (
    "from flwr.supernode.cli import flwr_clientapp; import client_app; "
    f"from dance_flwr.federation.client import handlers; {WORK}"
)


def of_command(code: str) -> float:
    """Return the processor seconds of a Python process that runs `code`."""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"expected exit status 0, found {status}: {code}")
    return used.ru_utime + used.ru_stime


def of_fork(task: Callable[[], object]) -> float:
    """Return the processor seconds of a fork of this process that runs `task`."""
    child = os.fork()
    if not child:
        task()
        os._exit(0)
    _, _, used = os.wait4(child, 0)
    return used.ru_utime + used.ru_stime


def bundles() -> tuple[bytes, bytes]:
    """Return the bundle of this app as Flower builds it, and one with a comment in every file."""
    with tempfile.TemporaryDirectory() as scratch:
        app = submitted_app(Path(scratch))
        same = build_fab_from_disk(app)
        for file in app.rglob("*.py"):
            file.write_bytes(file.read_bytes() + b"# comment\n")
        return same, build_fab_from_disk(app)


def main() -> None:
    """Print a line per way of starting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats

    def typical(measure: Callable[[], float]) -> float:
        return median(measure() for _ in range(repeats))

    torch, cold = typical(lambda: of_command(TORCH)), typical(lambda: of_command(COLD))
    same, commented = bundles()
    app = prefork.InstalledApp(prefork.load(), ())

    def task() -> None:
        app.install(same)
        exec(WORK)

    forked = typical(lambda: of_fork(task))
    compared = typical(lambda: of_fork(lambda: app.install(same)))
    parsed = typical(lambda: of_fork(lambda: app.install(commented)))
    print(f"import torch            {torch:6.2f} s")
    print(f"cold ClientApp          {cold:6.2f} s, {cold - torch:.2f} s beyond torch")
    print(f"forked ClientApp        {forked:6.2f} s, torch included")
    print(f"comparison of a bundle  {compared:6.2f} s, {parsed:.2f} s if every file is parsed")


if __name__ == "__main__":
    main()
