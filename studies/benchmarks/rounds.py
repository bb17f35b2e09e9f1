"""Seconds per round of `dance` beside `fedavg-full`: one round of each in turn, again and again.

    python studies/benchmarks/rounds.py [--data cora] [--set max-chunks=16] [--rounds 31]
    python studies/benchmarks/rounds.py --partition-folder FOLDER [--dance dance.batch-nodes=256]
    python studies/benchmarks/rounds.py ... --save results.jsonl
    python studies/benchmarks/rounds.py --plot performance.png results.jsonl

Three runs of the unmodified apps share one process and one core; each has a thread that waits for
its turn. The server, all messages, training and validation count, and clients answer one after the
other. `sampled` is `fedavg-full` with `sampling.batch-nodes`: a local epoch supervises as many
labelled nodes per client as a round of DANCE does. Round 1, which fills caches, is omitted.

DANCE condenses nodes and selects evidence in some rounds, selects evidence alone in others, and
does neither in most. The cost of a round is the mean over these kinds of rounds, each with its
share and its median. A ratio divides two such costs; the quartiles beside it are those of the
ratios round by round, over rounds of the most frequent kind. Other work on the machine hardly
changes CPU seconds. Bytes are those of one upload.
"""

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from made_up import nodes_of

from dance_flwr import metrics
from dance_flwr.config.paths import PROJECT
from dance_flwr.config.text import read_values
from dance_flwr.config.tree import RunConfig, flatten, parse

CONTENDERS = ("dance", "fedavg-full", "sampled")
FULL, SAMPLED = CONTENDERS[1:]
WARM = 1  # rounds that are omitted


class Run:
    """One contender: a run of the apps in a thread, which stops after every round.

    Attributes
    ----------
    wall, cpu : seconds per round
    train, validate : CPU seconds per round of the clients' answers
    rows : of the history; phases in CPU seconds, on a GPU in seconds
    """

    def __init__(self, make: Callable[[], RunConfig], out: Path) -> None:
        self.wall, self.cpu = list[float](), list[float]()
        self.train, self.validate = list[float](), list[float]()
        self.rows, self.result = list[dict[str, Any]](), dict[str, Any]()
        self._make, self._out, self._asked = make, out, 0.0
        self._error: BaseException | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def advance(self) -> bool:
        """Run one more round; return whether the run goes on."""
        self._go.release()
        self._stopped.acquire()
        if self._error:
            raise self._error
        return not self.result

    def condenses(self, place: int) -> bool:
        """Whether nodes are condensed in this round."""
        return bool(self.rows[place]["seconds"].get("nodes"))

    def kinds(self, rounds: int) -> list[list[int]]:
        """Return the rounds by what they do, the most frequent kind first."""
        kinds: dict[tuple[bool, bool], list[int]] = {}
        for place in range(WARM, rounds):
            selects = bool(self.rows[place]["seconds"].get("text"))
            kinds.setdefault((self.condenses(place), selects), []).append(place)
        return sorted(kinds.values(), key=len, reverse=True)

    def cost(self, values: Sequence[float]) -> float:
        """Return the mean cost of a round: of every kind its share and its median."""
        kinds = self.kinds(len(values))
        medians = [len(places) * median(values[place] for place in places) for places in kinds]
        return sum(medians) / sum(map(len, kinds))

    def _work(self) -> None:
        self._go.acquire()
        try:
            self._run(self._make())
        except BaseException as error:  # raised again where it is waited for
            self._error = error
        self._stopped.release()

    def _run(self, config: RunConfig) -> None:
        import client_app
        import server_app
        from dance_flwr.federation.flower import TaskIdentity
        from dance_flwr.runs.result import read_result
        from dance_flwr.runs.simulation.in_process import InProcessGrid

        logging.getLogger("flwr").setLevel(logging.ERROR)
        run, folder = time.time_ns(), Path(config.data)
        nodes = nodes_of(folder, config.clients)
        told = {"run_id": run, "on_message": self._on_message}
        grid = InProcessGrid(client_app.app, flatten(config), nodes, **told)

        def on_round(row: dict[str, Any]) -> None:
            self.wall.append(time.perf_counter() - self._start[0])
            self.cpu.append(time.process_time() - self._start[1])
            self.rows.append(row)
            self._stopped.release()
            self._go.acquire()
            TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, 0, run
            self._begin()

        self._begin()
        try:
            server_app.run(grid, config, str(run), self._out, on_round)
            self.result = read_result(self._out)
        finally:
            for place in folder.glob(f"client-*/runs/{run}"):
                shutil.rmtree(place)

    def _begin(self) -> None:
        self.train.append(0.0)
        self.validate.append(0.0)
        self._start = time.perf_counter(), time.process_time()

    def _on_message(self, message: Any) -> None:
        """Count the CPU seconds between a message and its reply."""
        if not message.metadata.reply_to_message_id:
            self._asked = time.process_time()
            return
        trains = message.metadata.message_type.startswith("train")
        per_round = self.train if trains else self.validate
        per_round[-1] += time.process_time() - self._asked


def measure(options: argparse.Namespace) -> dict[str, Run]:
    """Run the contenders in turn; return what their rounds cost."""
    folder = _prepared(options)
    clients = len(json.loads((folder / "manifest.json").read_text("utf-8"))["clients"])
    sys.path.insert(0, str(PROJECT))
    if options.device == "cpu":
        # Reports of phases in CPU seconds.
        vars(metrics)["time"] = SimpleNamespace(perf_counter=time.process_time)
    common = {"data": str(folder), "clients": clients, "rounds": options.rounds}
    common["device"] = options.device
    runs: dict[str, Run] = {}

    def config_of(name: str) -> RunConfig:
        values = read_values([], options.set) | common
        if name == "dance":
            own = _precision(options.precision) | read_values([], options.dance)
            return parse(values | own)
        values |= {"method": FULL} | _precision("float16" if options.precision else "")
        if name == SAMPLED:
            # As many labelled nodes per client and round as DANCE supervises.
            row = runs["dance"].rows[0]
            supervised = round(row["counts"]["evidence-supervised"] / len(row["bytes_up"]))
            values["sampling.batch-nodes"] = options.batch or max(1, supervised)
        return parse(values)

    with tempfile.TemporaryDirectory(prefix="dance-flwr-rounds-") as out:
        for name in options.only or CONTENDERS:
            runs[name] = Run(partial(config_of, name), Path(out) / name)
        left = list(runs.values())
        while left:
            left = [run for run in left if run.advance()]
    return runs


def _precision(value: str) -> dict[str, Any]:
    return {"upload-precision": value} if value else {}


def _prepared(options: argparse.Namespace) -> Path:
    """Return the folder of the clients, prepared if they are given as a graph."""
    if options.partition_folder:
        return Path(options.partition_folder).resolve()
    from dance_flwr.data.prepare import prepare

    return prepare(parse(read_values([], options.set) | {"data": options.data})).folder


def summary(found: Mapping[str, Run]) -> dict[str, Any]:
    """Return the figures of a measurement, as JSON."""
    figures: dict[str, Any] = {}
    for name, run in found.items():
        rows = run.rows[WARM:]
        due = [place for place in range(WARM, len(run.rows)) if run.condenses(place)]
        plain = run.kinds(len(run.rows))[0]
        figures[name] = {
            "wall": run.cost(run.wall),
            "cpu": run.cost(run.cpu),
            "ordinary cpu": median(run.cpu[place] for place in plain),
            "condensing cpu": median(run.cpu[place] for place in due) if due else 0.0,
            "condensations": [len(due), len(rows)],
            "train": run.cost(run.train[: len(run.rows)]),
            "validate": run.cost(run.validate[: len(run.rows)]),
            "phases": {
                phase: run.cost([row["seconds"].get(phase, 0.0) for row in run.rows])
                for phase in run.rows[0]["seconds"]
            },
            "upload": median(sum(row["bytes_up"].values()) / len(row["bytes_up"]) for row in rows),
            "accuracy": run.result["test_accuracy"],
            "supervised": run.rows[0]["counts"].get("evidence-supervised", 0)
            / len(rows[0]["bytes_up"]),
            "batch": run.result["config"].get("sampling.batch-nodes", 0),
        }
    return figures | {"ratios": _ratios(found, figures)}


def _ratios(found: Mapping[str, Run], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return per rival and clock the ratio of costs and the quartiles of ordinary rounds."""
    ratios: dict[str, Any] = {}
    if "dance" not in found:
        return ratios
    dance = found["dance"]
    plain = dance.kinds(len(dance.rows))[0]
    for name in found:
        for clock in ("cpu", "wall") if name != "dance" else ():
            own, other = getattr(dance, clock), getattr(found[name], clock)
            pairs = [own[p] / other[p] for p in plain]
            low, _, high = quantiles(pairs, n=4) if len(pairs) > 1 else pairs * 3
            ratio = figures["dance"][clock] / figures[name][clock]
            ratios.setdefault(name, {})[clock] = [ratio, low, high]
    return ratios


def show(figures: Mapping[str, Any]) -> None:
    """Print the tables."""
    names = [name for name in CONTENDERS if name in figures]
    print(
        f"{'':>14} {'CPU s':>8} {'s':>8} {'train':>8} {'validate':>8} {'server':>8} "
        f"{'upload kB':>10} {'accuracy':>8}"
    )
    for name in names:
        row = figures[name]
        server = row["cpu"] - row["train"] - row["validate"]
        print(
            f"{name:>14} {row['cpu']:>8.3f} {row['wall']:>8.3f} {row['train']:>8.3f} "
            f"{row['validate']:>8.3f} {server:>8.3f} {row['upload'] / 1e3:>10.1f} "
            f"{row['accuracy']:>8.4f}"
        )
    if "dance" not in figures:
        return
    own = figures["dance"]
    print("dance by phase, s, all clients: ", end="")
    print(", ".join(f"{phase} {value:.3f}" for phase, value in own["phases"].items()))
    print(
        f"an ordinary round {own['ordinary cpu']:.3f} CPU s, one that condenses nodes "
        f"{own['condensing cpu']:.3f}; {own['condensations'][0]} of {own['condensations'][1]} do"
    )
    for name, clocks in figures["ratios"].items():
        (cpu, low, high), (wall, wall_low, wall_high) = clocks["cpu"], clocks["wall"]
        line = f"dance / {name}: {cpu:.2f} ({low:.2f} to {high:.2f}) in CPU seconds, {wall:.2f} "
        line += f"({wall_low:.2f} to {wall_high:.2f}) in seconds"
        if name == SAMPLED:
            line += f"; batches of {figures[name]['batch']} for {own['supervised']:.0f} supervised"
        print(line)
    if FULL in figures:
        share = own["upload"] / figures[FULL]["upload"]
        print(f"upload / {FULL}'s in float16: {share:.2f}")


def plot(target: Path, files: Sequence[str]) -> None:
    """Draw seconds per round and accuracy over n from saved results of made-up graphs."""
    from dance_flwr_studies.reports.figures import style
    from matplotlib.figure import Figure

    from dance_flwr.disk import atomic_path

    lines = [line for file in files for line in Path(file).read_text("utf-8").splitlines()]
    results = sorted((json.loads(line) for line in lines), key=lambda result: result["nodes"])
    figure = Figure((9.0, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for place, name in enumerate(CONTENDERS):
        rows = [result for result in results if name in result]
        sizes = [row["nodes"] for row in rows]
        look = style(place)
        axes[0].plot(sizes, [row[name]["cpu"] for row in rows], label=name, **look)
        axes[1].plot(sizes, [row[name]["accuracy"] for row in rows], label=name, **look)
    axes[0].set(xscale="log", yscale="log", xlabel="nodes of all clients", ylabel="CPU s per round")
    axes[1].set(xscale="log", xlabel="nodes of all clients", ylabel="test accuracy")
    axes[0].legend()
    for axis in axes:
        axis.grid(alpha=0.3)
    with atomic_path(target) as draft:
        figure.savefig(draft, dpi=120, format="png")


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora", help="name of a data set, or its folder")
    parser.add_argument("--partition-folder", help="clients that are prepared already")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", choices=("cpu", "auto"), default="cpu", help="auto = a GPU")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of every run")
    parser.add_argument("--dance", nargs="*", default=[], metavar="KEY=VALUE", help="of dance")
    parser.add_argument("--precision", default="int8", help="of dance's upload; '' = no such key")
    parser.add_argument("--batch", type=int, default=0, help="of sampled; 0 = as dance")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS)
    parser.add_argument("--save", type=Path, help="append the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw saved figures")
    parser.add_argument("results", nargs="*")
    return parser.parse_args()


def main() -> None:
    """Measure and print, or draw."""
    options = parsed()
    if options.plot:
        plot(options.plot, options.results)
        return
    figures = summary(measure(options))
    if options.save:
        content = json.loads((_prepared(options) / "manifest.json").read_text("utf-8"))
        about = {"data": str(content["dataset"]), "nodes": content["num_nodes"]}
        with options.save.open("a", encoding="utf-8") as file:
            file.write(json.dumps(about | figures) + "\n")
    show(figures)


if __name__ == "__main__":
    main()
