"""`dance-flwr privacy`: what left the clients of a run."""

import typer

from dance_flwr.cli.options import FinishedRun

app = typer.Typer(
    name="privacy",
    no_args_is_help=True,
    help="Show what the messages of a run held and how much of its privacy budget was spent.",
)


@app.command()
def report(run: FinishedRun) -> None:
    """Print what each kind of message held, who could read it, and the epsilon spent.

    All of it is read from the run's own record.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from dance_flwr.runs import privacy_report
    from dance_flwr.runs.reader import read_result

    result = read_result(run)
    table = Table(box=SIMPLE_HEAD)
    for heading in privacy_report.columns():
        table.add_column(heading, justify="right" if heading in ("messages", "bytes") else "left")
    last: tuple[str, ...] = ()
    for row in privacy_report.table(result):
        repeated = row[:2] == last
        blank = ("", "")
        table.add_row(
            *(blank if repeated else row[:2]), *row[2:5], *(blank if repeated else row[5:])
        )
        last = row[:2]
    Console(width=max(Console().width, 160)).print(table)
    for line in privacy_report.promises(result):
        print(line)
