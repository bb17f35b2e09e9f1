"""`dance-flwr deploy`, `supernode`, `site`: certificates, keys, checks, and the data of a node."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
deploy = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    help="Set up a real federation: certificates, node keys, checks of a node.",
)
site = typer.Typer(
    name="site",
    no_args_is_help=True,
    help="Prepare the data of a node that brings its own graph.",
)
app.add_typer(deploy)
app.add_typer(site)

Superlink = Annotated[str, typer.Option(metavar="HOST:PORT", help="address of the SuperLink")]
RootCertificates = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="the server operator's ca.crt; default: the system's authorities"
    ),
]
Connection = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="name of the SuperLink in the command that registers this node"
    ),
]
NodeConfig = Annotated[
    str,
    typer.Option(metavar="FILE.toml", help="the SuperNode's --node-config, with this node's terms"),
]


# The options are those of Flower's command, to which they are passed on.
@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def supernode(
    context: typer.Context,
    accept_code: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIGEST",
            envvar="DANCE_FLWR_ACCEPT_CODE",
            help="take part in runs whose code differs so, as a refusal says; repeatable",
        ),
    ] = None,
) -> None:
    """Start a SuperNode that runs the installed code, whatever code a server sends.

    Takes the options of `flower-supernode` but those of its Runtime API. A run with other code is
    refused. Each message is answered in a process of its own, without the seconds that importing
    the libraries takes.
    """
    from dance_flwr.deploy.supernode import run_supernode

    run_supernode(context.args, accept_code or ())


@deploy.command()
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
    from dance_flwr.deploy.certificates import make_certificates, renew_certificate

    files = (
        renew_certificate(out, authority, host, days)
        if authority
        else make_certificates(out, host, days)
    )
    typer.echo(f"authority   {files.ca} (give every node a copy)")
    typer.echo(
        f"            {files.ca_key} (signs certificates: keep it private, ideally off the server)"
    )
    typer.echo(
        f"SuperLink   {files.certificate} and {files.key}, {days} days, for {', '.join(host)}"
    )


@deploy.command()
def key(
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="new private key; the public key is FILE.pub")
    ],
) -> None:
    """Create the key that authenticates a SuperNode (ECDSA P-384, OpenSSH format)."""
    from dance_flwr.deploy.certificates import make_key

    public = make_key(out)
    typer.echo(f"key         {out} (stays on this node)")
    typer.echo(
        f"public key  {public} (send it to the server operator: "
        f"flwr supernode register {public.name} SUPERLINK)"
    )


@deploy.command()
def peer_keys(
    public: Annotated[
        list[Path],
        typer.Argument(metavar="KEY.pub...", help="public keys of all nodes, client 0 first"),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="new file for all nodes")],
) -> None:
    """Collect the nodes' public keys in one file, for nodes to check each other's signatures."""
    from dance_flwr.deploy.peers import write_peer_keys

    for client, fingerprint in enumerate(write_peer_keys(out, public)):
        typer.echo(f"client {client:<4} {fingerprint}")
    typer.echo(f"peer keys   {out} (give every node a copy)")
    typer.echo("            each node compares the fingerprints with the other operators, not here")


@deploy.command()
def egress(
    superlink: Superlink,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="another host that the node may connect to: a resolver of names, an endpoint of "
            "language models; repeatable",
        ),
    ] = None,
) -> None:
    """Print the drop-in that lets the unit of a SuperNode connect to its server.

    The firewall of a unit knows addresses alone: print it again when a host gets another one.
    """
    from dance_flwr.deploy.network import addresses_of, parse_address

    hosts = [parse_address(superlink)[0], *(host or ())]
    typer.echo(f"# The addresses of {', '.join(hosts)}, by `dance-flwr deploy egress`.")
    typer.echo(f"[Service]\nIPAddressAllow={' '.join(addresses_of(hosts))}")


@deploy.command()
def agree(
    source: Annotated[
        Path,
        typer.Option(
            "--from", metavar="CLIENT_FOLDER", help="a client folder with its texts encoded"
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="new file, federation.toml")],
) -> None:
    """Write the file that all nodes agree on: class names, text encoder, chunks, protocol."""
    from dance_flwr.data import federation_file as agreement

    terms = agreement.agree(source)
    agreement.write_agreement(out, terms)
    typer.echo(f"agreed      {out} (give every node a copy)")
    typer.echo(
        f"            {len(terms.class_names)} classes, encoder {terms.encoder}, "
        f"protocol {terms.protocol}"
    )


@deploy.command()
def check(
    superlink: Superlink = "",
    root_certificates: RootCertificates = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="the node's private key")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="CLIENT_FOLDER", help="the client's folder")
    ] = None,
    agreed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the agreed federation.toml")
    ] = None,
    expect: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="the server's protocol; takes precedence over --agreed"
        ),
    ] = 0,
    connection: Connection = "SUPERLINK",
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="device that --node-config will name: auto, cpu or cuda:N"
        ),
    ] = "auto",
    node_config: NodeConfig = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the points as JSON")] = False,
) -> None:
    """Check whether this node can join, one line per point; exit with code 2 if it cannot.

    Points whose options are omitted are not checked.
    """
    import json

    from dance_flwr.deploy import check as checks

    node = checks.Node(
        superlink=superlink,
        root_certificates=root_certificates,
        key=key,
        data=data,
        agreed=agreed,
        expect=expect,
        device=device,
        node_config=node_config,
        connection=connection,
    )
    points = checks.run_checks(node)
    typer.echo(
        json.dumps(checks.as_json(points), indent=1) if as_json else "\n".join(checks.lines(points))
    )
    if not checks.can_join(points):
        # The code with which every error of a user ends.
        raise typer.Exit(2)


@site.command()
def prepare(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH_FOLDER", help="folder of your graph, or the name of a data set"
        ),
    ],
    agreed: Annotated[Path, typer.Option(metavar="FILE", help="the agreed federation.toml")],
    client: Annotated[int, typer.Option(help="number of this client, from 0")],
    clients: Annotated[int, typer.Option(help="total number of clients")],
    out: Annotated[
        Path, typer.Option(metavar="CLIENT_FOLDER", help="new folder, the SuperNode's data-path")
    ],
    encoder: Annotated[
        str,
        typer.Option(help="path of the agreed encoder on this machine; empty = look up its name"),
    ] = "",
    seed: Annotated[int, typer.Option(help="seed of the split, if the graph has none")] = 0,
) -> None:
    """Build the client folder of this node from its own graph, with agreed classes and encoder."""
    from dance_flwr.data import checks
    from dance_flwr.data.federation_file import read_agreement
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.data.institution import make_folder
    from dance_flwr.data.prepare import WARNING

    agreement, loaded = read_agreement(agreed), load_graph(graph)
    # Warnings alone: other clients may have labels, and learn for this one.
    lines = (checks.without_labels(loaded.labels), checks.without_edges(loaded.num_edges))
    for line in filter(None, lines):
        typer.echo(WARNING + line)
    card = make_folder(
        loaded, agreement, client, clients, out, encoder=encoder, seed=seed, log=typer.echo
    )
    typer.echo(f"client      {out}: client {client} of {clients}, {card.num_nodes:,} nodes")
