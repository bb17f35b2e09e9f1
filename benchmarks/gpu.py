"""What has to be measured on a GPU, in one hold of eight minutes; a table of results last.

    python benchmarks/gpu.py --cora FOLDER --debian FOLDER --million FOLDER [--texts FOLDER]
        [--log gpu.jsonl] [--steps NAME ...] [--list]

The folders of `--cora`, `--debian` and `--million` hold clients, as `dance-flwr partition` and
`made_up.py` write them, so that nothing is encoded before rounds are timed; `--texts` is a folder
of nodes.* and edges.* whose texts are encoded. Every step is a process with a limit of its own; its
result is appended to the log as soon as it ends, so that a hold which is cut loses one step. First
come timings, with the card to themselves, then what must be equal, last the tests.

To carry: the checkout, client folders without `edges.parquet` and `runs/` (Cora 5 MB, debian
55 MB), and the wheels of what the machine lacks; a million nodes are made up there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

REPEATS = 3
HERE = Path(__file__).resolve().parent
_DEBIAN = ["max-chunks=4", "validation-nodes=512", "sampling.batch-nodes=1024"]
_MAIN = "from dance_flwr.cli.main import main; main()"
_TESTS = ["tests/nn", "tests/dance", "tests/federation/client", "tests/runs/simulation"]


@dataclass(frozen=True)
class Step:
    """A command and the seconds that it may take.

    Attributes
    ----------
    same_as : name of the step whose model this one must train, bit for bit; "" = none
    """

    name: str
    command: list[str]
    limit: int
    environment: dict[str, str]
    same_as: str = ""


def steps_of(options: argparse.Namespace, work: Path) -> list[Step]:
    """Return the steps in their order."""
    python, steps = sys.executable, []
    contenders = ["--only", "dance", "fedavg-full", "sampled"]
    timed = (
        ("cora", options.cora, 22, ["--set", "max-chunks=16"], 15),
        ("debian", options.debian, 12, ["--set", *_DEBIAN, "--dance", "dance.batch-nodes=192"], 25),
        ("million", options.million, 5, ["--dance", "dance.batch-nodes=128"], 45),
    )
    for turn in range(REPEATS):
        for name, folder, rounds, keys, limit in timed:
            command = [python, str(HERE / "rounds.py"), "--partition-folder", str(folder)]
            command += ["--rounds", str(rounds), *keys, *contenders]
            steps.append(Step(f"{name}-{turn + 1}", command, limit, {}))

    def run(name: str, *keys: str, same_as: str = "") -> Step:
        command = [python, "-c", _MAIN, "run", "--in-process"]
        command += ["--out", str(work / name), "--set", "rounds=20"]
        for key in keys:
            command += ["--set", key]
        return Step(name, command, 15, {}, same_as)

    # The one that is killed is run again with `resume`, and must end where the first one did.
    masks = "privacy.secure-aggregation=true"
    steps += [run("once"), run("twice", same_as="once"), run("killed")]
    command = [python, "-c", _MAIN, "run", "--in-process", "--resume", str(work / "killed")]
    steps += [Step("killed", command, 15, {}, "once")]
    steps += [run("masked", masks), run("masked-again", masks, same_as="masked")]
    if options.texts:
        command = [python, "-c", _MAIN, "partition", "create", "--data", str(options.texts)]
        steps.append(Step("encoding", command, 40, {"DANCE_FLWR_HOME": str(work / "home")}))
    command = [python, "-m", "pytest", "-q", "-x", *_TESTS]
    return [*steps, Step("tests", command, 95, {"DANCE_TEST_DEVICE": "cuda"})]


def carry_out(step: Step, work: Path, killed: bool) -> dict[str, object]:
    """Run a step; return its row of the log.

    Parameters
    ----------
    killed : end it after its fifth round
    """
    start, text = time.perf_counter(), work / f"{step.name}.txt"
    with text.open("a") as out:
        process = subprocess.Popen(
            step.command, stdout=out, stderr=out, env={**os.environ, **step.environment}
        )
        history = work / step.name / "history.jsonl"
        while process.poll() is None and time.perf_counter() - start < step.limit:
            if killed and history.is_file() and history.read_text().count("\n") >= 5:
                break
            time.sleep(0.05)
        process.kill()
    row: dict[str, object] = {"step": step.name, "rc": process.wait()}
    row["seconds"] = round(time.perf_counter() - start, 1)
    row["last_lines"] = text.read_text(errors="replace").splitlines()[-4:]
    result = work / step.name / "result.json"
    if result.is_file() and not killed:
        row["model"] = json.loads(result.read_text())["model_fingerprint"]
    return row


def main() -> None:
    """Run the steps and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("cora", "debian", "million", "texts"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--log", type=Path, default=Path("gpu.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("gpu-work"))
    parser.add_argument("--steps", nargs="+", help="only these")
    parser.add_argument("--slower", type=int, default=1, help="factor of all limits, on a CPU")
    parser.add_argument("--list", action="store_true", help="print the steps and their limits")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    models: dict[str, object] = {}
    interrupted = False
    for step in steps_of(options, options.work.resolve()):
        if options.steps and step.name not in options.steps:
            continue
        if options.list:
            print(f"{step.limit:4} s  {step.name:14} {' '.join(step.command[1:])}")
            continue
        killed = step.name == "killed" and not interrupted
        interrupted |= killed
        limit = step.limit * options.slower
        row = carry_out(replace(step, limit=limit), options.work.resolve(), killed)
        if step.same_as:
            row["same"] = row.get("model") is not None and row["model"] == models.get(step.same_as)
        models.setdefault(step.name, row.get("model"))
        rows.append(row)
        with options.log.open("a") as log:
            log.write(json.dumps(row) + "\n")
    for row in rows:
        same = row.get("same", "")
        print(f"{row['step']:14} rc {row['rc']} {row['seconds']} s {row.get('model', '')} {same}")
        print(*(f"    {line}" for line in row["last_lines"]), sep="\n")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
