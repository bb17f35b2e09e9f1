"""Prepare data, run federations, inspect and verify evidence. Exits with 2 on a user error."""

import atexit
import gc
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from io import TextIOBase, TextIOWrapper
from types import TracebackType
from typing import Annotated, TextIO

import click
import typer

from dance_flwr.cli import data, deploy, evidence, listing, partition, predict, report, run, site
from dance_flwr.cli.options import Group
from dance_flwr.errors import UserError, near, refusal
from dance_flwr.escaping import escaped, one_line
from dance_flwr.fingerprint import VERSION
from dance_flwr.runs.processes import stopping_in_order

# A Typer with a name is a group of commands below that name; the commands of one without a name
# stand at the top level. In the order of the help.
GROUPS = (run, listing, report, evidence, predict, data, partition, deploy, site)
# Commands of the package in the repository's folder studies/.
STUDIES = ("experiment", "tune", "tables")


class Program(Group):
    """The commands of this package, and those of other installed packages."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names.

        Raises
        ------
        UserError : the package of the command is not installed
        """
        if args[0] in STUDIES and self.get_command(ctx, args[0]) is None:
            raise UserError(
                f"dance-flwr {args[0]}: expected the package dance-flwr-studies, found none; run "
                "`pip install dance-flwr-studies`"
            )
        return super().resolve_command(ctx, args)


# Typer's own tracebacks would not pass `_print_bug`, which escapes them.
app = typer.Typer(cls=Program, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
for group in GROUPS:
    app.add_typer(group.app, cls=Group, rich_help_panel=group.app.rich_help_panel)
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


class EscapedOutput(TextIOBase):
    """A text stream that escapes all that is written to it.

    It says that it is no terminal, so that libraries write plain text to it: colours would be
    escaped, too. Its width is that of the terminal behind it (`fileno`).

    Parameters
    ----------
    before : called before each write, such as to erase a progress bar
    """

    def __init__(self, stream: TextIO, before: Callable[[], None] = lambda: None) -> None:
        self._stream, self._before = stream, before

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What the stream does with characters that it cannot encode."""
        return self._stream.errors

    def write(self, text: str) -> int:
        """Write the escaped text; return the number of characters that were given."""
        # Here and not where texts are printed: no caller can forget it.
        self._before()
        self._stream.write(escaped(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the file descriptor, for those who ask for the width of the terminal."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Whether the stream can be written: always."""
        return True


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
    # For the same reason, fewer collections while modules load: a tenth of a start.
    gc.set_threshold(50_000, 20, 100)
    for stream in (sys.stdout, sys.stderr):
        # Texts are of any language, and a terminal of the C locale knows only ASCII.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with redirect_stdout(EscapedOutput(sys.stdout, _erase_bar)), stopping_in_order():
            code = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        _fail(_usage(error))
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        if not (line := refusal(error)):
            raise
        _fail(line)
    sys.exit(code)


def _usage(error: click.UsageError) -> str:
    """Return one line about words that are no command line."""
    command = error.ctx.command_path if error.ctx else "dance-flwr"
    if isinstance(error, click.NoSuchOption):
        closest = near(error.option_name, error.possibilities or ())
        similar = f"; did you mean {closest}?" if closest else ""
        return f"{error.option_name}: expected an option of `{command}`, found none{similar}"
    return f"{error.format_message().rstrip('.')}; see `{command} --help`"


def _erase_bar() -> None:
    """Erase the progress bar before something is printed, where one was ever shown."""
    # Looked up, not imported: help prints without it.
    if (terminal := sys.modules.get("dance_flwr.terminal")) is not None:
        terminal.clear()


def _fail(message: str) -> None:
    typer.echo(f"error: {one_line(message)}", err=True)
    sys.exit(2)


def _print_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback, escaped: it may quote texts of a data set."""
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
