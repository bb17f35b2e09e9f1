"""What a grid costs before it runs: hours, and calls of language models."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dance_flwr.config.paths import RESULT
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError, counted
from dance_flwr.runs.plan import Calls, asks, planned_calls
from dance_flwr.terminal import console
from dance_flwr_studies.engine.cells import Cell, dataset_name
from dance_flwr_studies.engine.folder import Study, read_json, run_name
from dance_flwr_studies.engine.rows import load_rows

COMMITTED = Path(__file__).parents[2] / "reproduction" / "results.jsonl"  # of a checkout
# Seconds per round of all clients on one core, on a graph of Cora's size, where no run exists.
DEFAULTS: Mapping[str, float] = {
    "fedavg-rotating": 0.25,
    "rotating-core": 0.15,
    "self-training": 0.3,
    "llm4rgnn-cosine": 0.4,
}
DEFAULT = 1.0  # of any other method

Samples = dict[tuple[str, ...], list[float]]


@dataclass(frozen=True)
class Line:
    """The runs of one method on one data set that are still to do.

    Attributes
    ----------
    rounds : of all runs together
    per_round : seconds per round, all clients on one core
    source : where `per_round` is from
    """

    dataset: str
    method: str
    runs: int
    rounds: int
    per_round: float
    source: str

    @property
    def seconds(self) -> float:
        """Seconds of all runs, one after the other."""
        return self.rounds * self.per_round


def estimate(study: Study, runs: Iterable[Cell], committed: Path | None = None) -> list[Line]:
    """Return one line per data set and method, from the median seconds per round.

    The median is over runs of the same method and data set, of this study, else of the committed
    rows; else of the same method on any data set, likewise; else it is a default of the method.
    """
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for cell in runs:
        key = dataset_name(cell.config.data), cell.config.method
        number, rounds = counts.get(key, (0, 0))
        counts[key] = number + 1, rounds + cell.config.rounds
    if not counts:
        return []
    # This study first, as its runs were timed on this machine.
    sources = {"finished runs": _of_study(study)}
    sources["committed rows"] = _of_rows(COMMITTED if committed is None else committed)
    return [
        Line(dataset, method, number, rounds, *_per_round(sources, dataset, method))
        for (dataset, method), (number, rounds) in counts.items()
    ]


def _per_round(sources: Mapping[str, Samples], dataset: str, method: str) -> tuple[float, str]:
    """Return seconds per round, and where they are from."""
    for key, where in (((method, dataset), ""), ((method,), " on other data sets")):
        for source, samples in sources.items():
            if values := samples.get(key):
                # The median: a run that shared its core does not move it.
                return statistics.median(values), f"{source}{where}"
    return DEFAULTS.get(method, DEFAULT), "default"


def _of_study(study: Study) -> Samples:
    """Return seconds per round of the finished runs, by method, and by method and data set."""
    samples: Samples = {}
    for path in study.runs.glob(f"*/{RESULT}"):
        result = read_json(path)
        settings = result["config"]
        value = result["seconds_total"] / max(1, len(result["history"]))
        _add(samples, settings["method"], dataset_name(settings["data"]), value)
    return samples


def _of_rows(file: Path) -> Samples:
    """Return the same of a file of compact rows; empty if there is none."""
    samples: Samples = {}
    if not file.is_file():
        return samples
    rows = (row for rows in load_rows(file).by_experiment.values() for row in rows if row.result)
    # Experiments share runs, and each counts once.
    for row in {row.name: row for row in rows}.values():
        value = row.result["seconds_total"] / max(1, row.result["rounds"])
        _add(samples, str(row.config["method"]), str(row.config["data"]), value)
    return samples


def _add(samples: Samples, method: str, dataset: str, value: float) -> None:
    for key in ((method,), (method, dataset)):
        samples.setdefault(key, []).append(value)


def time_left(lines: Sequence[Line], jobs: int) -> str:
    """Return the sum over the lines divided by the jobs, as one line of text."""
    if not lines:
        return "time left   none"
    seconds = sum(line.seconds for line in lines)
    guessed = sum(line.runs for line in lines if line.source == "default")
    rest = f"; {counted(guessed, 'run')} by a default of their method" if guessed else ""
    hours = f"{seconds / 3600:.1f} hours of one core, {counted(jobs, 'run')} at a time"
    return f"time left   about {_clock(seconds / jobs)}: {hours}{rest}"


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass(frozen=True)
class RunCalls:
    """The calls of one run by client; `reason` says why there are no counts, "" if there are."""

    name: str
    dataset: str
    method: str
    clients: tuple[Calls, ...]
    reason: str = ""


def calls_of(cells: Iterable[Cell], log: Callable[[str], None]) -> list[RunCalls]:
    """Return the calls of each run whose method or summaries ask a language model.

    Their partitions are prepared, as calls are counted at the clients.
    """
    calls = {}
    for config in (cell.config for cell in cells if not cell.measure and asks(cell.config)):
        name, clients, reason = run_name(config), tuple[Calls, ...](), ""
        try:
            clients = tuple(planned_calls(config, prepare(config, log).folder))
        except UserError as error:  # a data set that this machine does not have
            reason = str(error)
        calls[name] = RunCalls(name, dataset_name(config.data), config.method, clients, reason)
    return list(calls.values())


def print_calls(runs: list[RunCalls]) -> None:
    """Print calls and tokens of every run, by client and in all; nothing without such runs."""
    if not runs:
        return
    table = Table(box=SIMPLE_HEAD)
    for heading in ("run", "calls of each client", "calls", "tokens of each client", "tokens"):
        table.add_column(heading, overflow="fold")
    for run in runs:
        if run.reason:
            table.add_row(run.name, f"not counted: {run.reason}", "", "", "")
            continue
        words = [run.name]
        for counts in ([c.calls for c in run.clients], [c.tokens for c in run.clients]):
            words += [" ".join(f"{count:,}" for count in counts), f"{sum(counts):,}"]
        table.add_row(*words)
    console().print(table)
    calls, tokens = (
        sum(getattr(client, what) for run in runs for client in run.clients)
        for what in ("calls", "tokens")
    )
    print(
        f"model calls at most {calls:,} with {tokens:,} tokens in {counted(len(runs), 'run')}; "
        "what a client's cache holds costs nothing"
    )
