"""`dance-flwr site`: the folder that a node serves, made from its own graph."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, help="Prepare the data of a node that brings its own graph."
)


@app.callback()
def site() -> None:
    """Prepare the data of a node that brings its own graph."""


@app.command()
def prepare(
    graph: Annotated[
        str,
        typer.Argument(metavar="GRAPH_FOLDER", help="folder of your own graph, or a data set name"),
    ],
    agreed: Annotated[Path, typer.Option(metavar="FILE", help="the agreed federation.toml")],
    client: Annotated[int, typer.Option(help="number of this client, 0 for the first")],
    clients: Annotated[int, typer.Option(help="number of all clients")],
    out: Annotated[
        Path, typer.Option(metavar="CLIENT_FOLDER", help="new folder, the SuperNode's data-path")
    ],
    encoder: Annotated[
        str, typer.Option(help="where the agreed encoder is on this machine; empty = its name")
    ] = "",
    seed: Annotated[int, typer.Option(help="of the split, where the graph brings none")] = 0,
) -> None:
    """Make this node's client folder from its own graph, in the agreed classes and encoded as
    agreed.
    """
    from dance_flwr.deploy.agreement import read_agreement
    from dance_flwr.deploy.folder import make_folder

    card = make_folder(
        graph,
        read_agreement(agreed),
        client,
        clients,
        out,
        encoder=encoder,
        seed=seed,
        say=typer.echo,
    )
    typer.echo(f"client      {out}: client {client} of {clients}, {card.num_nodes:,} nodes")
