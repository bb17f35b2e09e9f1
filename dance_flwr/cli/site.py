"""`dance-flwr site` and `supernode`: bring your own graph to a federation, from key to results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dance_flwr.cli.options import Group
from dance_flwr.errors import UserError, counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.data.graphs.graph import TextGraph

_MAX_PACKS = 200  # of the audit page, as `evidence page` has

app = typer.Typer()
site = typer.Typer(
    name="site",
    no_args_is_help=True,
    help="Join a federation with your own graph: join, start, accept, results, privacy.",
)
app.add_typer(site, cls=Group, rich_help_panel="Deploy")

Graph = Annotated[
    str,
    typer.Argument(metavar="GRAPH_FOLDER", help="folder of your graph, or the name of a data set"),
]
Encoder = Annotated[
    str, typer.Option(help="path of the agreed encoder on this machine; empty = look up its name")
]
SiteFolder = Annotated[
    Path | None,
    typer.Option(
        "--site", metavar="DIR", help="the site's folder; default: the one in or below this folder"
    ),
]


# The options are those of Flower's command, to which they are passed on.
@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    rich_help_panel="Deploy",
)
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


@site.command()
def join(
    invitation: Annotated[
        Path, typer.Argument(metavar="INVITATION", help="file of the server operator for this site")
    ],
    graph: Graph,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="new folder of the site; default: the site's name"),
    ] = None,
    encoder: Encoder = "",
) -> None:
    """Create the site's key, prepare its graph, write its terms, and check whether it can join.

    The folder holds site.toml, the terms, and NAME.pub, the file to hand back. Exits with code 2
    if this site cannot join.
    """
    from dance_flwr.deploy.checks import can_join, lines
    from dance_flwr.deploy.invitation import Invitation
    from dance_flwr.deploy.site import join as create
    from dance_flwr.fingerprint import file_sha256

    name = Invitation.read(invitation).site
    made = create(invitation, _loaded(graph), out or Path(name), encoder=encoder, log=typer.echo)
    points = made.check_joined()
    typer.echo("\n".join(lines(points)))
    authority = file_sha256(made.node.root_certificates)
    typer.echo(f"authority   sha256 {authority}: compare it with the operator's by telephone")
    typer.echo(f"terms       {made.folder / 'site.toml'}: read them, change them as you like")
    typer.echo(f"hand back   {made.public_key}, to the server operator; nothing else leaves")
    if not can_join(points):
        raise typer.Exit(2)


@site.command()
def start(
    folder: SiteFolder = None,
    peer_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="public keys of all sites, the first time and when they change"
        ),
    ] = None,
) -> None:
    """Start the site's node in the foreground, with the terms of site.toml and installed code only.

    It is not started before every point of the connection, the key and the terms is in order.
    """
    from dance_flwr.deploy.site import Site

    opened = Site.open(folder)
    if peer_keys:
        for name, fingerprint in opened.set_peer_keys(peer_keys).items():
            typer.echo(f"{name:<12}{fingerprint}")
        typer.echo(
            "            compare each with the other sites' operators, not with the server's"
        )
    opened.start(lambda line: typer.echo(line))


@site.command()
def accept(
    digest: Annotated[
        str, typer.Argument(metavar="[DIGEST]", help="code to accept; without one, list it")
    ] = "",
    folder: SiteFolder = None,
) -> None:
    """List code that waits to be accepted, or accept it, once.

    Of a run whose code differs from the installed one, the node still runs its own.
    """
    from dance_flwr.deploy.bundle import accepted_code
    from dance_flwr.deploy.site import Site, accept_code, waiting_code

    place = Site.open(folder).folder
    if digest:
        typer.echo(f"accepted    {digest} {accept_code(place, digest)}")
        return
    for word, codes in (("accepted", accepted_code(place)), ("waiting", waiting_code(place))):
        for each, what in codes.items():
            typer.echo(f"{word:<12}{each} {what}")


@site.command()
def results(
    folder: SiteFolder = None,
    run: Annotated[str, typer.Option(help="name of the run; default: the newest one")] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="new folder; default: results/RUN")
    ] = None,
) -> None:
    """Write predictions.csv, audit.html and the model of a run that this site took part in.

    The model is the one that the node received when the run ended, mixed with the site's own where
    the run made one.
    """
    from dance_flwr.api.prediction_table import write_results
    from dance_flwr.deploy.site import Site
    from dance_flwr.federation.client.measured import read_measured
    from dance_flwr.methods import get_spec
    from dance_flwr.pages.audit import open_bundle, write_page

    opened = Site.open(folder)
    place, bundle = write_results(opened.client_folder, run, out, opened.folder, typer.echo)
    if measured := read_measured(opened.client_folder, str(bundle.facts["run"])):
        typer.echo(f"measured    {measured}")
    if get_spec(bundle.config.method).keeps_evidence:
        with open_bundle(bundle.folder, str(opened.client_folder), typer.echo) as subject:
            write_page(subject, place / "audit.html", [], _MAX_PACKS, typer.echo)


@site.command()
def privacy(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="name of the run; default: the newest one")
    ] = "",
    folder: SiteFolder = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a page, signed with the site's key")
    ] = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="FILE", help="check such a page, of any site")
    ] = None,
) -> None:
    """Print what left this site in a run, by its own record of every message."""
    from dance_flwr.cli.report import print_messages
    from dance_flwr.deploy.site import Site
    from dance_flwr.federation.client.measured import read_measured
    from dance_flwr.pages import statement
    from dance_flwr.terminal import wrapped

    if verify:
        of, fingerprint = statement.verify_statement(verify)
        typer.echo(f"verified    {of.site} of {of.federation}, run {of.run}, key {fingerprint}")
        return
    of = statement.Statement.of(opened := Site.open(folder), run)
    for sentence in of.sentences():
        typer.echo(wrapped(sentence))
    if html:
        statement.write_statement(opened, of, html)
        typer.echo(f"page        {html}: `dance-flwr site privacy --verify {html}` checks it")
        return
    # Of its own graph, and on no page: pages are shown to others.
    if measured := read_measured(opened.client_folder, of.lines[0]["run"]):
        typer.echo(f"measured    {measured}")
    print_messages(of.lines, "What it sent, and who can read it; a page of --html has each message")


@site.command()
def prepare(
    graph: Graph,
    agreed: Annotated[Path, typer.Option(metavar="FILE", help="the agreed federation.toml")],
    client: Annotated[int, typer.Option(help="number of this client, from 0")],
    clients: Annotated[int, typer.Option(help="total number of clients")],
    out: Annotated[
        Path, typer.Option(metavar="CLIENT_FOLDER", help="new folder, the SuperNode's data-path")
    ],
    encoder: Encoder = "",
    seed: Annotated[int, typer.Option(help="seed of the split, if the graph has none")] = 0,
) -> None:
    """Build a client folder alone, as `site join` does, from a graph of your own."""
    from dance_flwr.data.federation_file import read_agreement
    from dance_flwr.data.institution import make_folder

    agreement = read_agreement(agreed)
    card = make_folder(
        _loaded(graph), agreement, client, clients, out, encoder=encoder, seed=seed, log=typer.echo
    )
    typer.echo(
        f"client      {out}: client {client} of {clients}, {counted(card.num_nodes, 'node')}"
    )


def _loaded(graph: str) -> "TextGraph":
    from dance_flwr.data import checks
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.data.prepare import WARNING

    folders = sorted({file.parent.name for file in Path(graph).expanduser().glob("*/nodes.*")})
    if folders[1:]:
        raise UserError(
            f"{graph}: expected the graph of one site, found one in each of {', '.join(folders)}; "
            "name one of these folders"
        )
    loaded = load_graph(graph)
    # Warnings alone: other clients may have labels, and learn for this one.
    for line in (checks.without_labels(loaded.labels), checks.without_edges(loaded.num_edges)):
        if line:
            typer.echo(WARNING + line)
    return loaded
