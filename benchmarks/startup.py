"""Processor seconds of starting a ClientApp, cold and forked: the delay before it computes.

    python benchmarks/startup.py [--repeats 5]

Cold: `flwr-clientapp` as Flower starts it, then the imports of the app up to the task of a TRAIN
message and its first optimiser. Forked: the same in a child of `dance_flwr/deploy/prefork.py`.
Processor seconds, because the nodes of one machine share it; the median of the repeats, all in one
run.
"""

import argparse
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from dance_flwr.deploy import prefork

PROJECT = Path(__file__).resolve().parent.parent
TORCH = "import torch"
APP = (
    "import client_app; from dance_flwr.federation.client import handlers; "
    "from dance_flwr.methods import get_spec; get_spec('dance').make_client(); "
    "import torch; torch.optim.Adam([torch.zeros(1, requires_grad=True)])"
)
COLD = f"from flwr.supernode.cli import flwr_clientapp; {APP}"


def of_command(code: str) -> float:
    """Return the processor seconds of a Python process that runs `code`."""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"expected exit status 0, found {status}: {code}")
    return used.ru_utime + used.ru_stime


def of_fork() -> float:
    """Return the processor seconds of a fork of this process that imports the app."""
    child = os.fork()
    if not child:
        sys.path.insert(0, str(PROJECT))
        exec(APP)
        os._exit(0)
    _, _, used = os.wait4(child, 0)
    return used.ru_utime + used.ru_stime


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
    for name in [name for name in sys.modules if name.split(".")[0] == "dance_flwr"]:
        del sys.modules[name]  # a fork of prefork.py has not loaded the app
    runpy.run_path(str(Path(prefork.__file__)))["_load"]()
    forked = typical(of_fork)
    print(f"import torch            {torch:6.2f} s")
    print(f"cold ClientApp          {cold:6.2f} s, {cold - torch:.2f} s beyond torch")
    print(f"forked ClientApp        {forked:6.2f} s, torch included")


if __name__ == "__main__":
    main()
