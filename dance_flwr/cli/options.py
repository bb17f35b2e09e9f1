"""Arguments and options that several commands share."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup

from dance_flwr.cli import completion
from dance_flwr.config.plugins import METHODS, TRACKERS
from dance_flwr.errors import UserError, unknown

# Options that take all words that follow, up to the next option.
_LISTS = ("--compare", "--from", "--datasets", "--methods", "--ratios", "--seeds", "--where")
_WORDS = "dance_flwr.words"  # of a command, in the context of click


AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for programs")]


def print_json(facts: Any) -> None:
    """Print one JSON object; a number that JSON does not know is null."""
    typer.echo(json.dumps(_plain(facts), indent=1))


def _plain(value: Any) -> Any:
    """Return a value with null for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def run_folder(name: str | Path) -> Path:
    """Return the folder of the run that a user names, by its path or as `latest`."""
    from dance_flwr.runs.run import latest_run

    return latest_run() if str(name) == "latest" else Path(name)


class Group(TyperGroup):
    """A group of commands, which refuses an unknown one as other names are refused."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names."""
        is_name = not args[0].startswith("-") and not ctx.resilient_parsing
        if is_name and self.get_command(ctx, args[0]) is None:
            raise UserError(unknown(ctx.command_path, args[:1], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


class SpaceSeparated(TyperCommand):
    """A command whose list options take all words that follow, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each of its values, as click expects."""
        words = repeat_flags(args)
        ctx.meta[_WORDS] = tuple(words)  # the parser empties the list
        return super().parse_args(ctx, words)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete also a second value of a list, and a value behind KEY=, which bash splits."""
        words = [word for word in ctx.meta[_WORDS] if word != "="]
        flag, value = words[-2:] if len(words) > 1 else ("", "")
        # A shell knows nothing of `repeat_flags`: the flag is before the value that was completed.
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        if flag == "--set" and "=" not in value:
            found = completion.settings(f"{value}={incomplete}")
            values = [pair.removeprefix(f"{value}=") for pair in found]
            return [CompletionItem(each) for each in values if each.startswith(incomplete)]
        if flag in _LISTS:
            option = next(item for item in self.params if flag in item.opts)
            return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_flags(words: Sequence[str]) -> list[str]:
    """Turn `--datasets a b` into `--datasets a --datasets b`; leave other words unchanged."""
    repeated: list[str] = []
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word if word in _LISTS else ""
            repeated += [] if flag else [word]
        else:
            repeated += [flag, word] if flag else [word]
    return repeated


ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="TOML file; repeatable, later files win"),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        click_type=click.Choice(("in-process", "ray")),
        help="how clients run: one after the other (in-process, the default), or under Flower's "
        "simulation runtime, as many at once as there are cores or GPUs (ray)",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="set one key; repeatable, overrides files",
        autocompletion=completion.settings,
    ),
]
FinishedRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        parser=run_folder,
        help="folder of a finished run, or `latest`",
        autocompletion=completion.runs,
    ),
]
ClientFolder = Annotated[
    Path | None,
    typer.Option(
        "--client-folder",
        metavar="CLIENT_FOLDER",
        help="folder of the client, if the partition is not on this machine",
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", metavar="DIR", help="folder that holds prepared data"),
]
_GRAPH: Any = typer.Option(
    "--data",
    metavar="GRAPH",
    help="name of a data set, or folder of your graph",
    autocompletion=completion.graphs,
)
Graph = Annotated[str, _GRAPH]
OptionalGraph = Annotated[str | None, _GRAPH]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="name of a method, of `dance-flwr list methods`",
        autocompletion=METHODS.names,
    ),
]
Compared = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="METHOD...",
        help="also run these methods, one after the other",
        autocompletion=METHODS.names,
    ),
]
Rounds = Annotated[int | None, typer.Option("--rounds", help="number of communication rounds")]
Clients = Annotated[int | None, typer.Option("--clients", help="number of clients")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="seed of partition, split, model and training")
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="with --html: the file of the page",
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="also store rounds and result in mlflow, tensorboard or wandb; repeatable",
        autocompletion=TRACKERS.names,
    ),
]
RunPage = Annotated[
    bool,
    typer.Option("--html", help="write the page of a run, report.html in its folder or --out"),
]
Live = Annotated[
    bool, typer.Option("--live", help="update the page or tracker of a run until it ends")
]
