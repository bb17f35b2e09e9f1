"""What a SuperNode waits for before a ClientApp computes: processor seconds of starting one, cold
and forked.

    python benchmarks/startup.py [--repeats 5]

Cold: `flwr-clientapp` as Flower starts it, then the imports of our app up to the task of a TRAIN
message. Forked: the same in a child of `dance_flwr/deploy/warm.py`. Processor seconds, because five
nodes on one machine share it; the median of the repeats, all in one run.
"""

import argparse
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from dance_flwr.deploy import prefork as warm

PROJECT = Path(__file__).resolve().parent.parent
TORCH = "import torch"
APP = "import client_app; from dance_flwr import client_tasks, methods; methods.get_method('dance')"
COLD = f"from flwr.supernode.cli import flwr_clientapp; {APP}"


def of_command(code: str) -> float:
    """Return the processor seconds of a Python process that runs `code`."""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"expected this to run, found exit status {status}: {code}")
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
        del sys.modules[name]  # a fork of warm.py has nothing of the app
    runpy.run_path(str(Path(warm.__file__)))["_load"]()
    forked = typical(of_fork)
    print(f"import torch            {torch:6.2f} s")
    print(f"cold ClientApp          {cold:6.2f} s, {cold - torch:.2f} s beyond torch")
    print(f"forked ClientApp        {forked:6.2f} s, torch included")


if __name__ == "__main__":
    main()
