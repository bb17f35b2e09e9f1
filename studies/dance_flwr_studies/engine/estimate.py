"""What a grid costs before it runs: hours, and calls of language models."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dance_flwr.config.paths import RESULT
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError, counted
from dance_flwr.runs.plan import asks, planned_calls
from dance_flwr.runs.result import read_result
from dance_flwr.terminal import console
from dance_flwr_studies.engine.cells import Cell, dataset_name
from dance_flwr_studies.engine.folder import Study, run_name
from dance_flwr_studies.engine.rows import load_rows

COMMITTED = Path(__file__).parents[2] / "reproduction" / "results.jsonl"  # of a checkout
DEFAULT = 1.0  # seconds per round where no run exists
FINISHED, ROWS = "finished runs", "committed rows"


class Sample(NamedTuple):
    """Seconds per round of one run, all clients on one core."""

    source: str
    method: str
    dataset: str
    seconds: float


def print_hours(study: Study, runs: Sequence[Cell], jobs: int) -> None:
    """Print the hours of each method and data set, and those of the grid."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("data set", "method", "runs", "s per round", "from", "hours of one core"):
        table.add_column(heading, overflow="fold")
    keys = [(dataset_name(cell.config.data), cell.config.method) for cell in runs]
    rounds = Counter[tuple[str, str]]()
    for key, cell in zip(keys, runs, strict=True):
        rounds[key] += cell.config.rounds
    samples = [*_of_study(study), *_of_rows(COMMITTED)] if runs else []
    total = 0.0
    for (dataset, method), number in Counter(keys).items():
        seconds, source = per_round(samples, dataset, method)
        hours = rounds[dataset, method] * seconds / 3600
        table.add_row(dataset, method, str(number), f"{seconds:.2f}", source, f"{hours:.2f}")
        total += hours
    if not runs:
        print("time left   none")
        return
    console().print(table)
    at_once = f"{total:.1f} hours of one core, {counted(jobs, 'run')} at a time"
    print(f"time left   about {_clock(3600 * total / jobs)}: {at_once}")


def per_round(samples: Iterable[Sample], dataset: str, method: str) -> tuple[float, str]:
    """Return the median seconds per round of a method, and where they are from.

    Samples of the same data set come before those of others, and runs of this study, which were
    timed on this machine, before committed rows.
    """
    of_method = [sample for sample in samples if sample.method == method]
    same = [sample for sample in of_method if sample.dataset == dataset]
    for found, where in ((same, ""), (of_method, " on other data sets")):
        for source in (FINISHED, ROWS):
            if values := [sample.seconds for sample in found if sample.source == source]:
                # The median: a run that shared its core does not move it.
                return statistics.median(values), f"{source}{where}"
    return DEFAULT, "default"


def _of_study(study: Study) -> Iterator[Sample]:
    for path in study.runs.glob(f"*/{RESULT}"):
        result = read_result(path.parent)
        method, dataset = result["config"]["method"], dataset_name(result["config"]["data"])
        seconds = result["seconds_total"] / max(1, len(result["history"]))
        yield Sample(FINISHED, method, dataset, seconds)


def _of_rows(file: Path) -> list[Sample]:
    if not file.is_file():
        return []
    rows = (row for rows in load_rows(file).by_experiment.values() for row in rows if row.result)
    # Experiments share runs, and each counts once.
    return [
        Sample(
            ROWS,
            str(row.config["method"]),
            str(row.config["data"]),
            row.result["seconds_total"] / max(1, row.result["rounds"]),
        )
        for row in {row.name: row for row in rows}.values()
    ]


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes // 60} h {minutes % 60:02d} min"


def print_calls(cells: Iterable[Cell], log: Callable[[str], None]) -> None:
    """Print calls and tokens of each run that asks a language model; nothing without such runs.

    Their partitions are prepared, as calls are counted at the clients.
    """
    table = Table(box=SIMPLE_HEAD)
    for heading in ("run", "calls of each client", "calls", "tokens of each client", "tokens"):
        table.add_column(heading, overflow="fold")
    calls = tokens = 0
    configs = {run_name(cell.config): cell.config for cell in cells if asks(cell.config)}
    for name, config in configs.items():
        try:
            clients = planned_calls(config, prepare(config, log).folder)
        except UserError as error:  # a data set that this machine does not have
            table.add_row(name, f"not counted: {error}", "", "", "")
            continue
        words = [name]
        for counts in ([c.calls for c in clients], [c.tokens for c in clients]):
            words += [" ".join(f"{count:,}" for count in counts), f"{sum(counts):,}"]
        table.add_row(*words)
        calls += sum(client.calls for client in clients)
        tokens += sum(client.tokens for client in clients)
    if configs:
        console().print(table)
        print(
            f"model calls at most {calls:,} with {tokens:,} tokens in "
            f"{counted(len(configs), 'run')}; what a client's cache holds costs nothing"
        )
