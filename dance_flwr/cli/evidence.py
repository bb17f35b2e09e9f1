"""`dance-flwr evidence`: the evidence packs of a finished run."""

from typing import Annotated

import typer

from dance_flwr.cli.options import ClientFolder, FinishedRun

app = typer.Typer(
    name="evidence", no_args_is_help=True, help="Show and verify the evidence packs of a run."
)


@app.command()
def show(
    run: FinishedRun,
    client: Annotated[int, typer.Option(help="number of the client, from 0")] = 0,
    node: Annotated[
        str | None,
        typer.Option(metavar="ID", help="id of the node; default: that of the most confident pack"),
    ] = None,
    client_folder: ClientFolder = None,
) -> None:
    """Print one evidence pack: predictions, contributions, and texts with marked spans.

    A node outside the condensed core has no stored pack; its pack is computed with the run's model.
    """
    from dance_flwr.runs.evidence import show_evidence

    typer.echo(show_evidence(run, client, node, client_folder), nl=False)


@app.command()
def verify(
    run: FinishedRun,
    client_folder: ClientFolder = None,
    encode: Annotated[
        int, typer.Option(help="chunks per client whose embeddings are computed again", min=0)
    ] = 16,
) -> None:
    """Check files, spans, embeddings and weights against the run's record, the texts, the model."""
    from dance_flwr.runs.evidence_verification import verify_evidence

    verify_evidence(run, client_folder, typer.echo, encode)
