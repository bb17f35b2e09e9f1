"""A run that is killed again and again: the same bits as an undisturbed one, and nothing left.

    python benchmarks/kills.py [--engine in-process|ray] [--clients 50] [--kills 20] [--rounds 12]

The process that computes, and with Ray the whole group of processes, gets SIGKILL after a random
time, and the run is resumed, until it was killed often enough; then it may end. Compared are model,
evidence, history and scores; listed is what a killed process has left behind.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# What is a time, a place or the name of a run differs between two runs.
_VARIES = ("run", "partition_dir", "resumed_after", "config", "evidence_sha256")


def command(out: Path, options: argparse.Namespace, *resume: str) -> list[str]:
    """Return the command that starts or resumes the run in `out`."""
    program = [sys.executable, "-m", "dance_flwr", "run"]
    engine = ["--in-process"] if options.engine == "in-process" else []
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


def groups_of(session: int) -> list[int]:
    """Return the processes of a session, as Ray's workers are of the group of their parent."""
    listed = subprocess.run(["ps", "-eo", "pid,sid"], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()[1:]]
    return [int(pid) for pid, sid in pairs if int(sid) == session]


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
            for pid in groups_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
            kills += 1
            print(f"kill {kills} after {limit:.1f} s", flush=True)
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
