"""Prepare data, run federations, inspect and verify evidence. Exits with 2 on a user error."""

import atexit
import gc
import sys
from contextlib import redirect_stdout
from io import TextIOWrapper
from types import TracebackType
from typing import Annotated

import typer

from dance_flwr.cli import (
    config,
    data,
    deploy,
    evidence,
    partition,
    predict,
    review,
    run,
    site,
    status,
    study,
)
from dance_flwr.errors import UserError
from dance_flwr.escaping import EscapedOutput, escaped, one_line
from dance_flwr.fingerprint import VERSION

# In the order of `dance-flwr --help`. A Typer with a name is a group of commands below that name;
# the commands of one without a name stand at the top level.
GROUPS = (run, status, predict, study, config, evidence, review, data, partition, deploy, site)

# Typer's own tracebacks would not pass `_print_bug`, which escapes them.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
for group in GROUPS:
    app.add_typer(group.app)


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
        with redirect_stdout(EscapedOutput(sys.stdout)):
            app()
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        from dance_flwr.errors import refusal

        if not (line := refusal(error)):
            raise
        _fail(line)


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
        typer.echo(f"warning: {escaped(str(message).splitlines()[0])}", err=True)
