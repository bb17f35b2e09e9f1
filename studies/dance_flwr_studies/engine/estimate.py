"""What a grid costs before it runs: hours, and calls of language models."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError, counted
from dance_flwr.runs.plan import asks, planned_calls
from dance_flwr_studies.engine.cells import Cell, dataset_name
from dance_flwr_studies.engine.folder import Study, run_name
from dance_flwr_studies.engine.rows import load_rows

COMMITTED = Path(__file__).parents[2] / "reproduction" / "results.jsonl"  # of a checkout


def print_hours(study: Study, runs: Sequence[Cell], jobs: int) -> None:
    """Print the hours of a grid, by the runs of this study and by committed rows."""
    if not runs:
        print("time left   none")
        return
    known: dict[tuple[str, str], float] = {}
    # Those of this study were timed on this machine, and replace committed ones.
    for path in (COMMITTED, study.root):
        with suppress(UserError):  # there are none
            known |= seconds_per_round(path)
    keys = [(dataset_name(cell.config.data), cell.config.method) for cell in runs]
    unknown = sum(key not in known for key in keys)
    rounds = [cell.config.rounds for cell in runs]
    total = sum(known.get(key, 0.0) * n for key, n in zip(keys, rounds, strict=True)) / 3600
    text = f"about {total / jobs:.1f} h: {total:.1f} hours of one core"
    rest = f"; and {counted(unknown, 'run')} like which none has been timed" if unknown else ""
    print(f"time left   {text}, {counted(jobs, 'run')} at a time{rest}")


def seconds_per_round(path: Path) -> dict[tuple[str, str], float]:
    """Return (data set, method) -> median seconds of a round, all clients on one core."""
    tables = load_rows(path).by_experiment.values()
    # Experiments share runs, and each counts once.
    made = {row.name: row for rows in tables for row in rows if row.result}
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in made.values():
        key = str(row.config["data"]), str(row.config["method"])
        per_round = row.result["seconds_total"] / max(1, row.result["rounds"])
        seconds.setdefault(key, []).append(per_round)
    # The median: a run that shared its core does not move it.
    return {key: median(values) for key, values in seconds.items()}


def print_calls(cells: Iterable[Cell], log: Callable[[str], None]) -> None:
    """Print calls and tokens of each run that asks a language model; nothing without such runs.

    Their partitions are prepared, as calls are counted at the clients.
    """
    calls = tokens = 0
    configs = {run_name(cell.config): cell.config for cell in cells if asks(cell.config)}
    for name, config in configs.items():
        try:
            clients = planned_calls(config, prepare(config, log).folder)
        except UserError as error:  # a data set that this machine does not have
            print(f"not counted {name}: {error}")
            continue
        each = " ".join(f"{client.calls:,}" for client in clients)
        print(f"calls       {name}: {each} by client, {sum(c.tokens for c in clients):,} tokens")
        calls += sum(client.calls for client in clients)
        tokens += sum(client.tokens for client in clients)
    if configs:
        print(
            f"model calls at most {calls:,} with {tokens:,} tokens in "
            f"{counted(len(configs), 'run')}; what a client's cache holds costs nothing"
        )
