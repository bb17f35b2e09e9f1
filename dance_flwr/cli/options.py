"""Arguments and options that several commands share, and what a shell completes for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from dance_flwr.config.plugins import TRACKERS
from dance_flwr.errors import UserError, near, unknown

# Options that take all words that follow, up to the next option.
_LISTS = ("--compare", "--datasets", "--methods", "--ratios", "--seeds", "--where")


def print_json(facts: Any) -> None:
    """Print one JSON object; a number that JSON does not know is null."""
    from dance_flwr.disk import json_text

    typer.echo(json_text(facts, indent=1))


def run_folder(name: str | Path) -> Path:
    """Return the folder of the run that a user names, by its path or as `latest`."""
    from dance_flwr.runs.run import latest_run

    return latest_run() if str(name) == "latest" else Path(name)


def graphs() -> list[str]:
    """Return the names of graphs: built in, on this machine, and those that can be fetched."""
    from dance_flwr.config.paths import data_root
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.config.sections import DataConfig
    from dance_flwr.data.graphs.catalogue import CATALOGUE, imported_graphs

    return list(dict.fromkeys([*DATASETS, *imported_graphs(data_root(DataConfig())), *CATALOGUE]))


def runs() -> list[str]:
    """Return `latest` and the folders in ./runs; a shell completes other folders itself."""
    return ["latest", *(str(path) for path in sorted(Path("runs").glob("*/")))]


class Group(TyperGroup):
    """A group of commands that names the most similar one in place of an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names."""
        is_name = not args[0].startswith("-") and not ctx.resilient_parsing
        if is_name and self.get_command(ctx, args[0]) is None:
            raise UserError(unknown(ctx.command_path, args[:1], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


class SpaceSeparated(TyperCommand):
    """A command whose list options take every word up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each of its values, as click expects."""
        return super().parse_args(ctx, repeat_flags(args))


class WithKeys(SpaceSeparated):
    """A command with `--set`, which knows the keys of the configuration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Answer an unknown option with the key or the option that is meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from dance_flwr.config.tree import flat_fields

            name, keys = error.option_name.lstrip("-"), flat_fields()
            options = {word.lstrip("-") for item in self.params for word in item.opts}
            expected = f"{error.option_name}: expected an option of `{ctx.command_path}`, found "
            if name in keys:
                line = f"{expected}a key of the configuration; use --set {name}=VALUE"
                raise UserError(line) from None
            if similar := near(name, [*options, *keys]):
                meant = f"--{similar}" if similar in options else f"--set {similar}=VALUE"
                raise UserError(f"{expected}none; did you mean {meant}?") from None
            raise


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


AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for programs")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="TOML file; repeatable, later files win"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="set one key; repeatable, overrides files"),
]


def run_argument(text: str, metavar: str = "RUN") -> Any:
    """Return an argument that names a run; `text` is its help."""
    return typer.Argument(metavar=metavar, parser=run_folder, help=text, autocompletion=runs)


FinishedRun = Annotated[Path, run_argument("folder of a finished run, or `latest`")]
ClientFolder = Annotated[
    Path | None,
    typer.Option(
        "--client-folder",
        metavar="CLIENT_FOLDER",
        help="folder of the client, if the partition is not on this machine",
    ),
]
OptionalGraph = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="GRAPH",
        help="name of a data set, or folder of your graph",
        autocompletion=graphs,
    ),
]
Clients = Annotated[int | None, typer.Option("--clients", help="number of clients")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="seed of partition, split, model and training")
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="also store rounds and result in mlflow or tensorboard; repeatable",
        autocompletion=TRACKERS.names,
    ),
]


def beginning(text: str, characters: int) -> str:
    """Return a text in one line, cut after so many characters, in scripts without spaces, too."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[:characters].rstrip() + " ..."
