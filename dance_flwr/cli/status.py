"""`dance-flwr status`: the progress of a run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dance_flwr.cli.options import AsJson, print_json, run_folder, runs
from dance_flwr.errors import counted
from dance_flwr.escaping import one_line

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.runs.run import Absent, Status

app = typer.Typer()


@app.command(rich_help_panel="Run")
def status(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            parser=run_folder,
            help="folder of a run, finished or not, or `latest`",
            autocompletion=runs,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Print how far a run is: accuracy, time left, traffic, absent clients, how to resume."""
    from dance_flwr.runs.run import read_status

    current = read_status(run.expanduser().resolve())
    print_json(asdict(current)) if as_json else typer.echo(render(current))


def render(status: "Status") -> str:
    """Return a status as lines of text."""
    from dance_flwr.runs.run import FINISHED
    from dance_flwr.terminal import pace, size, whole

    rounds = "?" if status.rounds is None else str(status.rounds)
    reason = f": {status.reason}" if status.reason else ""
    rows = [
        ("run", f"{status.run or 'gathers its clients'} in {status.folder}"),
        ("state", f"{status.state}{reason}"),
        ("round", f"{status.round} of {rounds}"),
    ]
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
        yet = "" if status.state == FINISHED else " yet"
        rows.append(("accuracy", f"no round was validated{yet}"))
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
        total = len(status.answered) + len(status.absent)
        answered = f"{len(status.answered)} of {total} answered in round {status.round}"
        rows += [("clients", answered), *(("", _missing(absent)) for absent in status.absent)]
    if status.resume:
        rows.append(("resume", status.resume))
    return "\n".join(f"{name:12s}{one_line(text)}" for name, text in rows)


def _missing(absent: "Absent") -> str:
    from dance_flwr.terminal import duration

    last = (
        "never answered"
        if absent.last_answered is None
        else f"last answered in round {absent.last_answered}"
    )
    missed = f"missed {counted(absent.rounds, 'round')} in {duration(absent.seconds)}"
    return f"client {absent.client}: {last}, {missed}: {absent.reason}"
