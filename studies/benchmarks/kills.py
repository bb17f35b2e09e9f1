"""Kill a run again and again: it must end with the same bits, and leave nothing behind.

    python studies/benchmarks/kills.py [--engine in-process|ray] [--clients 50] [--kills 20]

The command gets SIGKILL after a random time, and the processes that it started must end by
themselves. Then the run is resumed, until it was killed often enough. Model, evidence, history and
scores are compared with those of an undisturbed run, and leftovers are listed.
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

# Times, places and names, which differ between any two runs.
_VARIES = ("run", "partition_dir", "resumed_after", "config", "evidence_sha256")


def command(verb: str, options: argparse.Namespace) -> list[str]:
    """Return `dance-flwr prepare` or `run` with the settings of the run."""
    keys = [f"clients={options.clients}", f"rounds={options.rounds}", "device=cpu"]
    settings = [part for key in keys for part in ("--set", key)]
    return [sys.executable, "-m", "dance_flwr", verb, "--data", options.data, *settings]


def run(out: Path, options: argparse.Namespace) -> list[str]:
    """Return the command that starts the run in `out`."""
    return [*command("run", options), "--engine", options.engine, "--out", str(out)]


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
    """Run to the end with kills at random times; return their number."""
    chance, kills, start = random.Random(options.seed), 0, run(out, options)
    errors = out.with_suffix(".err")
    while True:
        process = subprocess.Popen(
            start,
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
                start = [*start[:4], "--engine", options.engine, "--resume", str(out)]
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
        calm, killed = Path(root, "calm"), Path(root, "killed")
        # Texts are encoded here, so that the time below is that of any start.
        subprocess.run(command("prepare", options), check=True, stdout=subprocess.DEVNULL)
        start = time.monotonic()
        subprocess.run(run(calm, options), check=True, stdout=subprocess.DEVNULL)
        kills = kill_repeatedly(killed, options, time.monotonic() - start)
        left = sorted({p.name for p in killed.iterdir()} - {p.name for p in calm.iterdir()})
        alive = subprocess.run(["pgrep", "-f", root], capture_output=True, text=True, check=False)
        same = comparable(calm) == comparable(killed)
        print(f"{kills} kills; results {'equal' if same else 'DIFFER'}")
        print(f"left in the folder of the run: {', '.join(left) or 'nothing'}")
        print(f"left processes: {alive.stdout.split() or 'none'}")


if __name__ == "__main__":
    main()
