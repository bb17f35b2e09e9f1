"""`dance-flwr run`, `demo`, `prepare` and `encode`: run a federation, or resume one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from dance_flwr.cli import completion
from dance_flwr.cli.options import (
    Clients,
    Compared,
    ConfigFiles,
    Engine,
    Method,
    OptionalGraph,
    Rounds,
    Seed,
    Settings,
    SpaceSeparated,
    Trackers,
    run_folder,
)
from dance_flwr.cli.start import resume_run, runner_of, start_run
from dance_flwr.errors import UserError

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.config.options import Value

app = typer.Typer()


class RunCommand(SpaceSeparated):
    """The command `run`, which knows the keys of the configuration where an option is unknown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say in a `UserError` with which option a key is set, or which option is meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from dance_flwr.config.tree import flat_fields
            from dance_flwr.errors import near

            name, keys = error.option_name.lstrip("-"), flat_fields()
            options = {word.lstrip("-") for item in self.params for word in item.opts}
            expected = f"{error.option_name}: expected an option of `dance-flwr run`, found "
            if name in keys:
                line = f"{expected}a key of the configuration; use --set {name}=VALUE"
                raise UserError(line) from None
            if similar := near(name, [*options, *keys]):
                meant = f"--{similar}" if similar in options else f"--set {similar}=VALUE"
                raise UserError(f"{expected}none; did you mean {meant}?") from None
            raise


@app.command()
def demo() -> None:
    """Run five clients on a small built-in graph, then each of them alone, in about a minute."""
    start_run({}, compare=["local-only"])


@app.command(cls=RunCommand)
def run(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    method: Method = None,
    rounds: Rounds = None,
    clients: Clients = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for result.json and the model")
    ] = None,
    engine: Engine = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the run in --out, finished or not")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            parser=run_folder,
            help="folder of an interrupted run, or `latest`",
            autocompletion=completion.runs,
        ),
    ] = None,
    compare: Compared = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="print the plan and the calls of a language model, run nothing"
        ),
    ] = False,
    track: Trackers = None,
) -> None:
    """Prepare the data, run the federation, and say how accurate it is and what left the clients.

    With --compare, other methods run on the same clients, and report.html in the folder of the run
    shows all of them. With --resume, continue a run that was interrupted.
    """
    keys = {"data": data, "method": method, "rounds": rounds, "clients": clients, "seed": seed}
    keys |= {"out": str(out) if out else None, "overwrite": overwrite or None}
    if resume is None:
        values = _values_of(config, set_) | {k: v for k, v in keys.items() if v is not None}
        start_run(values, runner_of(engine), dry_run, track or [], compare or [])
        return
    options = {"config": config, "set": set_, **keys, "dry-run": dry_run or None}
    options["compare"] = compare or None
    extra = [f"--{name}" for name, value in options.items() if value is not None]
    if extra:
        raise UserError(
            "--resume: expected no other option than --engine and --track, found "
            f"{', '.join(extra)}; "
            "a run resumes with its own configuration, so omit them"
        )
    resume_run(resume, runner_of(engine), track or [])


@app.command()
def prepare(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    clients: Clients = None,
    seed: Seed = None,
) -> None:
    """Encode the texts and write the client folders, without running anything."""
    from dance_flwr.config.reading import read_config
    from dance_flwr.data import prepare as preparation

    named = {"data": data, "clients": clients, "seed": seed}
    values = {key: value for key, value in named.items() if value is not None}
    preparation.prepare(read_config(config or [], set_ or [], values), typer.echo)


@app.command()
def encode(
    folder: Annotated[
        Path, typer.Argument(metavar="CLIENT_FOLDER", help="folder of one client, `client-K/`")
    ],
    config: ConfigFiles = None,
    set_: Settings = None,
) -> None:
    """Encode the texts of one client folder that `partition make --no-encode` wrote."""
    from dance_flwr.config.reading import read_config
    from dance_flwr.data.client_folder import encode_client
    from dance_flwr.data.prepare import text_bank

    encode_client(folder, text_bank(read_config(config or [], set_ or [], {})), typer.echo)


def _values_of(files: list[Path] | None, pairs: list[str] | None) -> "dict[str, Value]":
    """Return the flat keys of TOML files and KEY=VALUE pairs; later sources win.

    Raises
    ------
    UserError : a file cannot be read, or one sets what an option of the command decides
    """
    from dance_flwr.config.reading import read_values

    values = read_values(files or [], pairs or [])
    for key, option in (("resume", "--resume RUN"), ("overwrite", "--overwrite")):
        if values.get(key):
            raise UserError(
                f"{key}: expected an option, found a key; use `dance-flwr run {option}`"
            )
    return values
