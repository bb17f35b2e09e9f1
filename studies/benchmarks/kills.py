"""A run that is killed again and again: the same bits as an undisturbed one, and nothing left.

    python studies/benchmarks/kills.py [--engine in-process|ray] [--clients 50] [--kills 20] [--rounds 12]

The command gets SIGKILL after a random time; what it has started must end by itself. Then the run
is resumed, until it was killed often enough; the last start may end. Compared are model, evidence,
history and scores; listed is what the killed processes have left behind.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

# What is a time, a place or the name of a run differs between two runs.
_VARIES = ("run", "partition_dir", "resumed_after", "config", "evidence_sha256")


def command(out: Path, options: argparse.Namespace, *resume: str) -> list[str]:
    """Return the command that starts or resumes the run in `out`."""
    program = [sys.executable, "-m", "dance_flwr", "run"]
    engine = ["--engine", options.engine]
    if resume:
        return [*program, *engine, *resume]
    keys = [f"clients={options.clients}", f"rounds={options.rounds}", "device=cpu"]
    settings = [part for key in keys for part in ("--set", key)]
    return [*program, *engine, "--data", options.data, *settings, "--out", str(out)]


def comparable(out: Path) -> dict[str, Any]:
    """Return a result without seconds and without what differs between any two runs."""
    result = json.loads((out / "result.json").read_text("utf-8"))
    rows = [
        {key: value for key, value in row.items() if "seconds" not in key}
        for row in result.pop("history")
    ]
    kept = {k: v for k, v in result.items() if k not in _VARIES and "seconds" not in k}
    return {**kept, "history": rows}


def kill(process: subprocess.Popen[bytes]) -> float:
    """Kill a process; return the seconds until all that it had started is gone as well."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    start = time.monotonic()
    _, left = psutil.wait_procs(family, timeout=60)
    if left:
        raise SystemExit(f"left after a minute: {[each.name() for each in left]}")
    return time.monotonic() - start


def kill_repeatedly(out: Path, options: argparse.Namespace, undisturbed: float) -> int:
    """Run to the end, with kills at random times; return how many hit a process at work."""
    chance, kills, resume = random.Random(options.seed), 0, list[str]()
    errors = out.with_suffix(".err")
    while True:
        process = subprocess.Popen(
            command(out, options, *resume),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=errors.open("w"),
        )
        # Anywhere from its start to the end of a few rounds, so that every phase is hit.
        limit = None if kills == options.kills else chance.uniform(2, 2 + undisturbed / 3)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            seconds = kill(process)
            kills += 1
            print(f"kill {kills} after {limit:.1f} s, all gone {seconds:.1f} s later", flush=True)
            if (out / "result.json").is_file():  # killed after its end: nothing to resume
                return kills
            if (out / "checkpoint.safetensors").is_file():
                resume = ["--resume", str(out)]
            continue
        if code:
            raise SystemExit(f"the run ended with {code}, {kills} kills: {errors.read_text()}")
        return kills


def main() -> None:
    """Print every kill, whether the results are equal, and what was left behind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("in-process", "ray"), default="in-process")
    parser.add_argument("--data", default="pydocs", help="data set name, or a graph folder")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the times of the kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        calm, killed, start = Path(root, "calm"), Path(root, "killed"), time.monotonic()
        subprocess.run(command(calm, options), check=True, stdout=subprocess.DEVNULL)
        kills = kill_repeatedly(killed, options, time.monotonic() - start)
        left = sorted({p.name for p in killed.iterdir()} - {p.name for p in calm.iterdir()})
        alive = subprocess.run(["pgrep", "-f", root], capture_output=True, text=True, check=False)
        same = comparable(calm) == comparable(killed)
        print(f"{kills} kills; results {'equal' if same else 'DIFFER'}")
        print(f"left in the folder of the run: {', '.join(left) or 'nothing'}")
        print(f"left processes: {alive.stdout.split() or 'none'}")


if __name__ == "__main__":
    main()
