"""What the runs of a grid will ask of language models, printed before any token is spent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError
from dance_flwr.runs.plan import Calls, asks, planned_calls
from dance_flwr.study.engine.cells import Cell, dataset_name
from dance_flwr.study.engine.folder import run_name


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
    Console().print(table)
    calls, tokens = (
        sum(getattr(client, what) for run in runs for client in run.clients)
        for what in ("calls", "tokens")
    )
    print(
        f"model calls at most {calls:,} with {tokens:,} tokens in {len(runs)} runs; what a "
        "client's cache holds costs nothing"
    )
