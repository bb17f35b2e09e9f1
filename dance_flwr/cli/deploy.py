"""`dance-flwr deploy`: a federation at its server."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import ConfigFiles, Settings

app = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    rich_help_panel="Deploy",
    help="Run a real federation: init, serve, admit, run.",
)

FederationFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="folder of the federation; default: the one in or below this folder"
    ),
]


@app.command()
def init(
    federation: Annotated[
        Path, typer.Argument(metavar="NAME", help="new folder; its name becomes the federation's")
    ],
    host: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="DNS name or IP address of the server; repeatable, nodes connect to the first",
        ),
    ],
    classes: Annotated[
        str,
        typer.Option(metavar="A,B,C", help="names of the classes, in the order of their numbers"),
    ],
    sites: Annotated[
        str, typer.Option(metavar="NORTH,SOUTH,WEST", help="names of the sites, client 0 first")
    ],
    set_: Settings = None,
    port: Annotated[int, typer.Option(help="port of the gate, which nodes connect to")] = 9092,
    superlink_port: Annotated[int, typer.Option(help="port of the SuperLink, on loopback")] = 8000,
) -> None:
    """Create a federation: authority, agreed file, gate, unit, and an invitation for each site.

    Runs use secure aggregation unless --set turns it off. Invitations hold no secrets.
    """
    from dance_flwr.config.text import read_values
    from dance_flwr.config.tree import parse
    from dance_flwr.deploy.federation import INVITATIONS, cannot_lose_one, create
    from dance_flwr.fingerprint import file_sha256

    labels, names = (tuple(part.strip() for part in text.split(",")) for text in (classes, sites))
    values = {"privacy.secure-aggregation": True} | read_values([], set_ or [])
    values |= {"clients": len(names)}
    config = parse(values)
    ports = {"port": port, "superlink_port": superlink_port}
    made = create(federation, host, labels, names, values, config, **ports)
    typer.echo(f"federation  {made.folder}")
    typer.echo(f"invitations {made.folder / INVITATIONS}: one file for each site, no secrets")
    typer.echo(f"authority   sha256 {file_sha256(made.certificates.ca)}: tell it to each site")
    typer.echo(f"            {made.certificates.ca_key} signs certificates: move it off the server")
    if line := cannot_lose_one(len(names), config):
        typer.echo(f"warning     {line}")


@app.command()
def serve(federation: FederationFolder = None) -> None:
    """Run SuperLink and gate in the foreground, until SIGTERM or Ctrl-C."""
    from functools import partial

    from dance_flwr.deploy.federation import Federation

    Federation.open(federation).serve(partial(print, flush=True))


@app.command()
def admit(
    keys: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[NAME.pub...]", help="public keys that sites have handed back"),
    ] = None,
    federation: FederationFolder = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="exchange the key of a site that has another one")
    ] = False,
) -> None:
    """Register the keys of sites, and print the state of each site.

    With the last one, the file of all public keys is written, which every site gets.
    """
    from dance_flwr.deploy.federation import Federation

    opened = Federation.open(federation)
    for key in keys or ():
        opened.admit(key, replace)
    for site, (state, fingerprint) in opened.statuses().items():
        typer.echo(f"{site:<12}{state:<14}{fingerprint}")
    if keys and (path := opened.peer_keys).is_file():
        typer.echo(
            f"all sites   give each {path}, for `dance-flwr site start --peer-keys {path.name}`"
        )


@app.command()
def run(
    federation: FederationFolder = None,
    config: ConfigFiles = None,
    set_: Settings = None,
    name: Annotated[str, typer.Option(help="of the run's folder; default: the time")] = "",
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="folder of an interrupted run")
    ] = None,
) -> None:
    """Check a run against the terms of its nodes, submit it, and follow it to the end.

    Exits with code 0 if the run has a result, and with 2 and the reason if it has none.
    """
    from dance_flwr.cli.report import under_noise
    from dance_flwr.deploy.federation import Federation
    from dance_flwr.runs.result import why_not_tested

    home = resume.expanduser().resolve().parent.parent if resume else None  # the run is in runs/
    opened = Federation.open(federation or home)
    settled = opened.config(config or [], set_ or [], name, resume)
    result = opened.run(settled, typer.echo)
    score = result["test_accuracy"]
    known = f"not measured: {why_not_tested(result)}" if score is None else f"{score:.4f}"
    typer.echo(f"accuracy    {known}{'' if score is None else ' on test nodes'}")
    for line in under_noise(Path(settled.out)):
        typer.echo(line)
