"""`dance-flwr deploy`: a federation at its server, and certificates, keys and checks."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import AsJson, ConfigFiles, Settings, print_json
from dance_flwr.errors import UserError, counted

app = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    rich_help_panel="Deploy",
    help="Run a real federation: init, serve, admit, run; the others are for setups by hand.",
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
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="by hand, without a federation: only write the keys, client 0 first, to this new "
            "file for all nodes",
        ),
    ] = None,
) -> None:
    """Register the keys of sites, and print the state of each site.

    With the last one, the file of all public keys is written, which every site gets.
    """
    from dance_flwr.deploy.certificates import write_peer_keys
    from dance_flwr.deploy.federation import Federation

    if out is not None:
        if not keys:
            raise UserError("--out: expected the public keys of all nodes, found none; name them")
        for client, fingerprint in enumerate(write_peer_keys(out, keys)):
            typer.echo(f"client {client:<4} {fingerprint}")
        typer.echo(
            f"peer keys   {out}: give every node a copy; each node compares the fingerprints"
        )
        typer.echo("            with the other operators, not here")
        return
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

    opened = Federation.open(federation)
    settled = opened.config(config or [], set_ or [], name, resume)
    result = opened.run(settled, typer.echo)
    score = result["test_accuracy"]
    known = f"not measured: {why_not_tested(result)}" if score is None else f"{score:.4f}"
    typer.echo(f"accuracy    {known}{'' if score is None else ' on test nodes'}")
    for line in under_noise(Path(settled.out)):
        typer.echo(line)


@app.command()
def certificates(
    host: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="DNS name or IP address of the SuperLink; repeatable"),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="folder for ca.crt, ca.key, server.pem and server.key"),
    ],
    days: Annotated[int, typer.Option(help="validity of the server's certificate in days")] = 365,
    authority: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="sign with the existing ca.crt and ca.key of this folder"),
    ] = None,
) -> None:
    """Create a certificate authority and the SuperLink's certificate, or renew the certificate.

    With --authority, the new certificate is signed by that authority, so nodes keep their ca.crt.
    """
    from dance_flwr.deploy.certificates import make_certificates

    files = make_certificates(out, host, days, authority=authority)
    typer.echo(f"authority   {files.ca} (give every node a copy)")
    typer.echo(
        f"            {files.ca_key} (signs certificates: keep it private, ideally off the server)"
    )
    typer.echo(
        f"SuperLink   {files.certificate} and {files.key}, {counted(days, 'day')}, for "
        f"{', '.join(host)}"
    )


@app.command()
def check(
    superlink: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="address of the SuperLink")
    ] = "",
    root_certificates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="the server operator's ca.crt; default: the system's authorities"
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="the node's private key")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="CLIENT_FOLDER", help="the client's folder")
    ] = None,
    agreed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the agreed federation.toml")
    ] = None,
    node_config: Annotated[
        str,
        typer.Option(
            metavar="FILE.toml", help="the SuperNode's --node-config, with this node's terms"
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check whether this node can join, one line per point; exit with code 2 if it cannot.

    Points whose options are omitted are not checked.
    """
    from dance_flwr.deploy import checks

    points = checks.run_checks(
        checks.Node(
            superlink=superlink,
            root_certificates=root_certificates,
            key=key,
            data=data,
            agreed=agreed,
            node_config=node_config,
        )
    )
    if as_json:
        print_json(checks.as_json(points))
    else:
        typer.echo("\n".join(checks.lines(points)))
    if not checks.can_join(points):
        raise typer.Exit(2)  # as every error of a user
