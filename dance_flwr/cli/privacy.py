"""`dance-flwr privacy`: what left the clients of a run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, help="What the messages of a run held, and what was spent of its budget."
)


@app.command()
def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="folder of a finished run, the one with result.json"),
    ],
) -> None:
    """Print what each kind of message held, who could read it, and the spent epsilon, from the
    run's own record.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from dance_flwr.runs.privacy_report import columns, promises, table
    from dance_flwr.runs.reader import read_result

    result = read_result(run)
    made = Table(box=SIMPLE_HEAD)
    for heading in columns():
        made.add_column(heading, justify="right" if heading in ("messages", "bytes") else "left")
    last: tuple[str, ...] = ()
    for row in table(result):
        again = row[:2] == last
        made.add_row(
            *(("", "") if again else row[:2]), *row[2:5], *(("", "") if again else row[5:])
        )
        last = row[:2]
    Console(width=max(Console().width, 160)).print(made)
    for line in promises(result):
        print(line)
