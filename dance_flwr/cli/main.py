"""`dance-flwr`: prepare, run, read evidence, check it. User mistakes end in one line and exit code
2.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.data import app as data_app
from dance_flwr.cli.deploy import app as deploy_app
from dance_flwr.cli.partition import app as partition_app
from dance_flwr.cli.privacy import app as privacy_app
from dance_flwr.cli.site import app as site_app
from dance_flwr.cli.status import register as register_status
from dance_flwr.cli.study import register
from dance_flwr.errors import UserError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__
)
evidence = typer.Typer(no_args_is_help=True, help="Read and check the evidence packs of a run.")
app.add_typer(evidence, name="evidence")
app.add_typer(data_app, name="data")
app.add_typer(partition_app, name="partition")
app.add_typer(privacy_app, name="privacy")
app.add_typer(deploy_app, name="deploy")
app.add_typer(site_app, name="site")

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="folder of a finished run, the one with result.json")
]
ClientFolder = Annotated[
    Path | None,
    typer.Option(
        "--client-folder",
        help="the client's folder, where RUN's own partition is not on this machine",
    ),
]


@app.command()
def run(
    config: Annotated[
        list[Path] | None, typer.Option("--config", help="TOML file; later files win")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="one key; wins over files"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="data set name, or the folder of your own graph")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="number of clients")] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of partition, split, model and training")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder of result.json and the model")
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="no Ray: clients one after the other")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="folder of an interrupted run, the one with history.jsonl"
        ),
    ] = None,
) -> None:
    """Prepare the data, run the federation, and print accuracy per client; or go on with a run that
    was interrupted.
    """
    from dance_flwr.cli.commands import resume_command, run_command

    named = {"data": data, "clients": clients, "seed": seed, "out": str(out) if out else None}
    if resume is not None:
        given = [
            f"--{name}"
            for name, value in {"config": config, "set": set_, **named}.items()
            if value is not None
        ]
        if given:
            raise UserError(
                f"--resume: expected no other option but --in-process, found {', '.join(given)}; a run goes on with "
                "its own configuration: leave them out"
            )
        resume_command(resume, in_process)
    else:
        run_command(
            config or [], set_ or [], {k: v for k, v in named.items() if v is not None}, in_process
        )


@app.command()
def prepare(
    config: Annotated[
        list[Path] | None, typer.Option("--config", help="TOML file; later files win")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="one key; wins over files"),
    ] = None,
) -> None:
    """Encode texts and make the client folders, without running anything."""
    from dance_flwr.config.reading import read_config
    from dance_flwr.data.prepare import prepare as make

    make(read_config(config or [], set_ or [], {}), typer.echo)


@app.command()
def encode(
    folder: Annotated[
        Path, typer.Argument(metavar="CLIENT_FOLDER", help="one client's folder, `client-K/`")
    ],
    config: Annotated[
        list[Path] | None, typer.Option("--config", help="TOML file; later files win")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="one key; wins over files"),
    ] = None,
) -> None:
    """Encode the texts of one client folder on this machine, where `partition make --no-encode`
    left that out.
    """
    from dance_flwr.config.reading import read_config
    from dance_flwr.data.client_folder import encode_client
    from dance_flwr.data.prepare import text_bank

    encode_client(folder, text_bank(read_config(config or [], set_ or [], {})), typer.echo)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def supernode(context: typer.Context) -> None:
    """Start a SuperNode that keeps the libraries of its ClientApps loaded; options are those of
    `flower-supernode`.

    Each message still gets a process of its own, without the seconds that importing takes.
    """
    from dance_flwr.deploy.supernode import become_supernode

    become_supernode(context.args)


register_status(app)
register(app)


@app.command(name="config")
def show_config() -> None:
    """Print every key with its default, what it accepts and what it means."""
    from dance_flwr.config.text import markdown_table

    typer.echo(markdown_table())


@evidence.command()
def show(
    run: Run,
    client: Annotated[int, typer.Option(help="number of the client")] = 0,
    node: Annotated[
        str | None, typer.Option(help="node id; left out: the most confident pack")
    ] = None,
    client_folder: ClientFolder = None,
) -> None:
    """Print one evidence pack: the prediction and the source texts with the chosen spans marked.

    A node outside the condensed core has no stored pack; its pack is computed with the run's model.
    """
    from dance_flwr.cli.commands import show_command

    typer.echo(show_command(run, client, node, client_folder), nl=False)


@evidence.command()
def verify(run: Run, client_folder: ClientFolder = None) -> None:
    """Re-read every span from the source text and recompute the weights from the saved model."""
    from dance_flwr.cli.commands import verify_command

    verify_command(run, client_folder, typer.echo)


def main() -> None:
    """Run the command line; a `UserError`, or a disk that refuses, is one line on stderr and exit
    code 2.
    """
    import warnings

    warnings.showwarning = _one_line
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        from dance_flwr.disk import refusal

        if not (line := refusal(error)):
            raise
        typer.echo(f"error: {line}", err=True)
        sys.exit(2)


def _one_line(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print the warnings that speak to the user, without the line of code that raised them."""
    if issubclass(category, UserWarning):
        typer.echo(f"warning: {str(message).splitlines()[0]}", err=True)
