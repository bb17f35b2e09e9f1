"""`dance-flwr site`: the client folder that a node serves, built from its own graph."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="site",
    no_args_is_help=True,
    help="Prepare the data of a node that brings its own graph.",
)


@app.command()
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
    from dance_flwr.data.federation_file import read_agreement
    from dance_flwr.data.institution import make_folder

    agreement = read_agreement(agreed)
    card = make_folder(
        graph, agreement, client, clients, out, encoder=encoder, seed=seed, say=typer.echo
    )
    typer.echo(f"client      {out}: client {client} of {clients}, {card.num_nodes:,} nodes")
