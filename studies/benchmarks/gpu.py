"""What has to be measured on a GPU: equal bits, encoding, and rounds of three graphs.

    python studies/benchmarks/gpu.py --cora FOLDER --debian FOLDER [--nodes 1000000] [--work FOLDER]
        [--set encoder=FOLDER encoder-sha256=HASH] [--steps NAME ...]

The folders hold the graphs, nodes.* and edges.*. Each step is a process: graphs are encoded and a
million nodes made up; five runs of one seed, of which one is killed and resumed and two are masked,
must end with equal bits; the tests of `tests/nn` run on the GPU. The timings follow, alone on the
GPU. Every result is appended to `results.jsonl` of the working folder at once.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

MAIN = [sys.executable, "-m", "dance_flwr"]
_CORA, _DEBIAN = ["max-chunks=16"], ["max-chunks=4", "validation-nodes=512"]
# Rounds that are timed, keys of both methods, and keys of DANCE alone.
TIMED = {
    "cora": (22, _CORA, []),
    "debian": (22, _DEBIAN, ["dance.batch-nodes=192"]),
    "million": (11, ["validation-nodes=512"], ["dance.batch-nodes=128"]),
}
# Run -> the one whose model it must train, bit for bit.
SAME_AS = {"once": "", "twice": "once", "killed": "once", "masked": "", "masked-again": "masked"}
ENVIRONMENT = {"DANCE_TEST_DEVICE": "cuda", "OMP_NUM_THREADS": "1"}


class Work:
    """The folder of a measurement, and its results so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, options.work.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ.update(ENVIRONMENT | {"DANCE_FLWR_HOME": str(self.folder / "home")})

    def note(self, **row: Any) -> None:
        """Append a result to the log and print it."""
        with (self.folder / "results.jsonl").open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    def do(self, name: str, command: Sequence[str], kill_after: int = 0) -> None:
        """Run a command and note its seconds and last lines; kill it after so many rounds."""
        start, text = time.perf_counter(), self.folder / f"{name}.txt"
        history = self.folder / name / "history.jsonl"
        with text.open("a") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
            while kill_after and process.poll() is None:
                if history.is_file() and history.read_text().count("\n") >= kill_after:
                    process.kill()
                time.sleep(0.05)
            code = process.wait()
        lines = text.read_text(errors="replace").splitlines()[-3:]
        self.note(step=name, rc=code, seconds=round(time.perf_counter() - start, 1), lines=lines)

    def wants(self, name: str) -> bool:
        """Whether a step is asked for, and its clients are not there from an earlier call."""
        done = name in TIMED and (self.folder / name).is_dir()
        return not done and (not self.options.steps or name in self.options.steps)


def steps(work: Work) -> None:
    """Write the clients, train the runs that must be equal, and test."""
    options = work.options

    def sets(*keys: str) -> list[str]:
        return [word for key in (*options.set, *keys) for word in ("--set", key)]

    for name, graph, keys in (("cora", options.cora, _CORA), ("debian", options.debian, _DEBIAN)):
        if work.wants(name):
            out = ["--data", str(graph), "--out", str(work.folder / name)]
            work.do(name, [*MAIN, "partition", "make", *out, *sets(*keys)])
    if work.wants("million"):
        made_up = [sys.executable, str(Path(__file__).with_name("made_up.py"))]
        made_up += [str(work.folder / "million"), "--nodes", str(options.nodes)]
        work.do("million", made_up)
    models: dict[str, str] = {}
    for name, other in SAME_AS.items():
        if work.wants(name):
            out = str(work.folder / name)
            masks = ["privacy.secure-aggregation=true"] if name.startswith("masked") else []
            command = [*MAIN, "run", "--data", str(options.cora), "--out", out]
            command += sets(*_CORA, "rounds=12", *masks)
            work.do(name, command, 5 if name == "killed" else 0)
            if name == "killed":
                work.do(name, [*MAIN, "run", "--resume", out])
            result = json.loads((work.folder / name / "result.json").read_text())
            models[name] = result["model_fingerprint"]
            work.note(run=name, same_as=other, equal=not other or models[name] == models.get(other))
    if work.wants("tests"):
        work.do("tests", [sys.executable, "-m", "pytest", "-q", "tests/nn"])


def timings(work: Work) -> None:
    """Time the rounds of each graph, DANCE and FedAvg in turn."""
    import rounds

    for name, (number, keys, dance) in TIMED.items():
        if work.options.steps and name not in work.options.steps:
            continue
        words = ["--device", work.options.device, "--dance", *dance, "--set", *keys]
        words += ["--partition-folder", str(work.folder / name), "--rounds", str(number)]
        options = rounds.parsed([*words, "--only", "dance", "fedavg-full"])
        repeats = []
        for _ in range(work.options.repeats):
            figures = rounds.summary(rounds.measure(options))
            full = figures["fedavg-full"]
            ratio, low, high = figures["ratios"]["fedavg-full"]["wall"]
            row = {"dance": figures["dance"]["wall"], "fedavg-full": full["wall"], "ratio": ratio}
            row |= {"ordinary, low": low, "ordinary, high": high}
            # No method can go below it: a round of FedAvg whose epochs take no time.
            row["without epochs"] = 1 - full["phases"]["train"] / full["wall"]
            repeats.append(row)
        work.note(
            timed=name, **{k: round(median(row[k] for row in repeats), 4) for k in repeats[0]}
        )


def main() -> None:
    """Run the steps and the timings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cora", type=Path, required=True)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of every run")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, default=Path("gpu-work"))
    parser.add_argument("--steps", nargs="+", help="only these, and timings of these names")
    parser.add_argument("--device", choices=("cpu", "auto"), default="auto", help="of the timings")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each graph")
    work = Work(parser.parse_args())
    steps(work)
    timings(work)


if __name__ == "__main__":
    main()
