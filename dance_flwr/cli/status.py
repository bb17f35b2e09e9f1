"""`dance-flwr status` and `privacy`: the progress of a run, and what left its clients."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dance_flwr.cli import completion
from dance_flwr.cli.options import AsJson, FinishedRun, Group, print_json, run_folder
from dance_flwr.errors import counted
from dance_flwr.escaping import one_line

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.runs.run import Absent, Status

app = typer.Typer()
privacy = typer.Typer(
    name="privacy",
    no_args_is_help=True,
    help="Show what the messages of a run held and how much of its privacy budget was spent.",
)
app.add_typer(privacy, cls=Group)


@app.command()
def status(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            parser=run_folder,
            help="folder of a run, finished or not, or `latest`",
            autocompletion=completion.runs,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Print the progress of a run: round, accuracy, time left, traffic, clients, how to resume."""
    from dance_flwr.runs.run import read_status

    current = read_status(run.expanduser().resolve())
    print_json(asdict(current)) if as_json else typer.echo(render(current))


def render(status: "Status") -> str:
    """Return a status as lines of text."""
    from dance_flwr.terminal import pace, size, whole

    rounds = "?" if status.rounds is None else str(status.rounds)
    rows = [
        ("run", f"{status.run or 'gathers its clients'} in {status.folder}"),
        ("state", _state(status)),
    ]
    rows.append(("round", f"{status.round} of {rounds}"))
    if status.skipped:
        numbers = ", ".join(map(str, status.skipped))
        rows.append(("", f"skipped, as no client that took part had a weight: {numbers}"))
    if status.val_accuracy is not None:
        last = f"{status.val_accuracy:.4f} on validation in round {status.val_round}"
        rows.append(
            ("accuracy", f"{last}, best {status.best_accuracy:.4f} in round {status.best_round}")
        )
    elif status.private and status.private.withheld:
        rows.append(("accuracy", "clients count no validation under differential privacy"))
    elif status.round:
        rows.append(("accuracy", f"no round was validated{'' if _over(status) else ' yet'}"))
    if status.test_accuracy is not None:
        rows.append(("", f"{status.test_accuracy:.4f} on the test nodes"))
    elif status.not_tested:
        rows.append(("", f"not measured on test nodes: {status.not_tested}"))
    rows += status.private.rows() if status.private else []
    if status.seconds_total is not None:
        left = "" if not status.seconds_left else f", about {whole(status.seconds_left)} left"
        rows.append(("time", pace(status.seconds_total, status.round) + left))
    if status.round:
        rows.append(("bytes", f"{size(status.bytes_down)} down, {size(status.bytes_up)} up"))
        rows += _clients(status)
    if status.resume:
        rows.append(("resume", status.resume))
    return "\n".join(f"{name:12s}{one_line(text)}" for name, text in rows)


def _over(status: "Status") -> bool:
    from dance_flwr.runs.run import FINISHED

    return status.state == FINISHED


def _state(status: "Status") -> str:
    return f"{status.state}: {status.reason}" if status.reason else status.state


def _clients(status: "Status") -> list[tuple[str, str]]:
    """Return how many clients answered in the last round, and a line for each that did not."""
    total = len(status.answered) + len(status.absent)
    rows = [("clients", f"{len(status.answered)} of {total} answered in round {status.round}")]
    return rows + [("", _missing(absent)) for absent in status.absent]


def _missing(absent: "Absent") -> str:
    from dance_flwr.terminal import duration

    last = (
        "never answered"
        if absent.last_answered is None
        else f"last answered in round {absent.last_answered}"
    )
    missed = f"missed {counted(absent.rounds, 'round')} in {duration(absent.seconds)}"
    return f"client {absent.client}: {last}, {missed}: {absent.reason}"


@privacy.command()
def report(run: FinishedRun) -> None:
    """Print what each kind of message held, who could read it, and the epsilon spent.

    All of it is read from the run's own record.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from dance_flwr.runs import privacy_report
    from dance_flwr.runs.result import read_result
    from dance_flwr.terminal import console

    result = read_result(run)
    table = Table(box=SIMPLE_HEAD)
    for heading in privacy_report.COLUMNS:
        side: Literal["left", "right"] = "right" if heading in ("messages", "bytes") else "left"
        table.add_column(heading, justify=side, overflow="fold")
    last: tuple[str, ...] = ()
    for row in privacy_report.table(result):
        # A kind of message with several records is named once.
        repeated = row[:2] == last
        blank = ("", "")
        table.add_row(
            *(blank if repeated else row[:2]), *row[2:5], *(blank if repeated else row[5:])
        )
        last = row[:2]
    console().print(table)
    for line in privacy_report.promises(result):
        print(line)
