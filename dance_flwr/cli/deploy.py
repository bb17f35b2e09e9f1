"""`dance-flwr deploy`: certificates, keys, the agreed federation file, and the check of a node
before it joins.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Set up a real federation: certificates, node keys, checks of a node.",
)


@app.command()
def certificates(
    host: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="DNS name or IP address of the SuperLink; repeatable"),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="folder of ca.crt, ca.key, server.pem and server.key"),
    ],
    days: Annotated[int, typer.Option(help="days until the server's certificate ends")] = 365,
    authority: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="sign with ca.crt and ca.key of this folder: a renewal"),
    ] = None,
) -> None:
    """Make a certificate authority and the SuperLink's certificate, or renew the latter under the
    same authority.
    """
    from dance_flwr.deploy.certificates import make_certificates, renew_certificate

    made = (
        renew_certificate(out, authority, host, days)
        if authority
        else make_certificates(out, host, days)
    )
    typer.echo(f"authority   {made.ca} (every node gets a copy)")
    typer.echo(
        f"            {made.ca_key} (signs certificates: keep it to yourself, best not on the server)"
    )
    typer.echo(f"SuperLink   {made.certificate} and {made.key}, {days} days, for {', '.join(host)}")


@app.command()
def key(
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="new private key; its public half goes to FILE.pub")
    ],
) -> None:
    """Make the key that a SuperNode proves itself with (ECDSA P-384, OpenSSH)."""
    from dance_flwr.deploy.certificates import make_key

    public = make_key(out)
    typer.echo(f"key         {out} (stays on this node)")
    typer.echo(
        f"public key  {public} (send it to the server operator: flwr supernode register {public.name} SUPERLINK)"
    )


@app.command()
def agree(
    source: Annotated[
        Path, typer.Option("--from", metavar="CLIENT_FOLDER", help="a client folder, texts encoded")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="new file, federation.toml")],
) -> None:
    """Write down what all nodes agree on: class names, text encoder, chunks, code."""
    from dance_flwr.deploy import agreement

    made = agreement.agree(source)
    agreement.write_agreement(out, made)
    typer.echo(f"agreed      {out} (every node gets a copy)")
    typer.echo(
        f"            {len(made.class_names)} classes, encoder {made.encoder}, code {made.code}"
    )


@app.command()
def check(
    superlink: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="address of the SuperLink")
    ] = "",
    root_certificates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the server operator's ca.crt; left out: the system's"),
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="the node's private key")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="CLIENT_FOLDER", help="the client's folder")
    ] = None,
    agreed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the agreed federation.toml")
    ] = None,
    expect: Annotated[
        str, typer.Option(metavar="FINGERPRINT", help="of the server's code; wins over --agreed")
    ] = "",
    connection: Annotated[
        str,
        typer.Option(metavar="NAME", help="of the SuperLink in the line that registers this node"),
    ] = "SUPERLINK",
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="that --node-config is going to name: auto, cpu or cuda:N"
        ),
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print the points as JSON")] = False,
) -> None:
    """Say whether this node can join, one line per point; exit code 2 if it cannot.

    What is not given is not checked.
    """
    import json

    from dance_flwr.deploy import check as checks

    node = checks.Node(superlink, root_certificates, key, data, agreed, expect, device, connection)
    points = checks.run_checks(node)
    typer.echo(
        json.dumps(checks.as_json(points), indent=1) if as_json else "\n".join(checks.lines(points))
    )
    if not checks.can_join(points):
        raise typer.Exit(2)
