"""Prepare data, run federations, inspect and verify evidence. Exits with 2 on a user error."""

import atexit
import gc
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from io import TextIOWrapper
from types import TracebackType
from typing import Annotated

import click
import typer
from typer.core import TyperCommand, TyperGroup

from dance_flwr.cli import (
    config,
    data,
    deploy,
    evidence,
    listing,
    new,
    partition,
    predict,
    report,
    review,
    run,
    site,
    status,
)
from dance_flwr.cli.options import Group
from dance_flwr.errors import UserError
from dance_flwr.escaping import EscapedOutput, escaped, one_line
from dance_flwr.fingerprint import VERSION

# A Typer with a name is a group of commands below that name; the commands of one without a name
# stand at the top level.
GROUPS = (
    *(run, listing, status, report, evidence, predict, review, new, data, partition, config),
    *(deploy, site),
)
# What `dance-flwr --help` shows together and in this order, with a line for each.
PANELS = {
    "Run": {
        "demo": "five clients on a small graph, then each alone: about a minute",
        "run": "run a federation on this machine, and other methods beside it",
        "status": "how far a run is, who is missing, how to resume",
        "list": "methods, partitioners, strategies, or runs",
    },
    "Look": {
        "report": "scores and costs of a run, its page",
        "evidence": "the texts behind each prediction: show, verify, page",
        "privacy": "what messages held, and who could read it",
        "worth": "what joining was worth to each client",
        "export": "the model, to predict with elsewhere",
        "predict": "predict new nodes, with their evidence",
        "review": "how far reviewers of an audit page agree, and where not",
    },
    "Own data": {
        "new": "a study of your own files: look at them, write study.toml",
        "data": "list, fetch, import and show graphs",
        "stats": "count classes, neighbours, lengths of texts before any training",
        "partition": "divide a graph among clients",
        "prepare": "make the clients of a run without running it",
        "encode": "encode the texts of one client folder",
        "config": "all keys of a run",
    },
    "Study": {
        "experiment": "a grid of runs: methods, data, seeds",
        "tune": "search hyper-parameters",
        "tables": "tables and figures of runs or of a study",
    },
    "Deploy": {
        "deploy": "a federation at its server: init, serve, admit, run",
        "site": "a federation at a site: join, start, accept, results",
        "personal": "a client that joins late: the model, mixed with its own",
        "supernode": "a SuperNode that runs the installed code alone",
    },
}


# Commands of the package in the repository's folder studies/.
STUDIES = ("experiment", "tune", "tables")


class Program(Group):
    """The commands in the panels of `PANELS`, and those of other installed packages."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; refuse one that is not installed."""
        if args[0] in STUDIES and self.get_command(ctx, args[0]) is None:
            raise UserError(
                f"dance-flwr {args[0]}: expected the package dance-flwr-studies, found none; run "
                "`pip install dance-flwr-studies`"
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        order = [name for names in PANELS.values() for name in names]
        return sorted(self.commands, key=lambda name: (*order, name).index(name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, which knows its panel."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand | TyperGroup):
            for panel, lines in PANELS.items():
                if cmd_name in lines:
                    command.rich_help_panel, command.short_help = panel, lines[cmd_name]
        return command


# Typer's own tracebacks would not pass `_print_bug`, which escapes them.
app = typer.Typer(cls=Program, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
for group in GROUPS:
    app.add_typer(group.app, cls=Group)
# Another package adds commands by an entry point to a `typer.Typer`.
for point in sorted(entry_points(group="dance_flwr.commands"), key=lambda point: point.name):
    try:
        app.add_typer(point.load(), cls=Group)
    except Exception as error:  # another package may raise anything; our commands do without it
        reason = one_line(f"{type(error).__name__}: {error}")
        typer.echo(f"warning: commands of {point.value}: {reason}; repair its package", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dance-flwr {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line.

    A `UserError`, or a disk that refuses to read or write, is reported as one line on stderr with
    exit code 2; anything else is a bug and ends in a traceback. No text that is printed, whoever
    wrote it, can command the terminal.
    """
    import warnings

    warnings.showwarning, sys.excepthook = _print_warning, _print_bug
    # Else the interpreter walks all objects of torch as it ends: most of a second, or ten of them
    # on a busy machine, in which a run that was stopped is still there.
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        # Texts are of any language, and a terminal of the C locale knows only ASCII.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with redirect_stdout(EscapedOutput(sys.stdout, _erase_bar)):
            app()
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        from dance_flwr.errors import refusal

        if not (line := refusal(error)):
            raise
        _fail(line)


def _erase_bar() -> None:
    """Erase the progress bar before something is printed, where one was ever shown."""
    # Looked up, not imported: help prints without it.
    if (terminal := sys.modules.get("dance_flwr.terminal")) is not None:
        terminal.clear()


def _fail(message: str) -> None:
    """Print a message as one line, whatever line breaks a quoted error has, and exit."""
    typer.echo(f"error: {one_line(message)}", err=True)
    sys.exit(2)


def _print_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback, whose texts may be those of a data set."""
    from traceback import format_exception

    sys.stderr.write(escaped("".join(format_exception(kind, error, trace))))


def _print_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    """Print the first line of a `UserWarning`, without the code that raised it."""
    # Other warnings are for developers of the libraries.
    if issubclass(category, UserWarning):
        _erase_bar()
        typer.echo(f"warning: {escaped(str(message).splitlines()[0])}", err=True)
