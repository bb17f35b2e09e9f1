"""`dance-flwr export` and `predict`: hand a model on, and use it."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import ClientFolder, FinishedRun

app = typer.Typer()

BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="folder that `dance-flwr export` wrote")
]


@app.command()
def export(
    run: FinishedRun,
    out: Annotated[Path, typer.Option(metavar="BUNDLE", help="new folder")],
    client_folder: ClientFolder = None,
) -> None:
    """Write what is needed to predict with the model of a run: no text, edge or evidence."""
    from dance_flwr.api.prediction.bundle import export as write

    bundle = write(run, out, client_folder)
    fitted = bundle.calibration
    typer.echo(f"bundle      {out}, model {bundle.model_id}")
    if fitted.nodes:
        typer.echo(
            f"calibration temperature {fitted.temperature:.3f} by {fitted.nodes:,} nodes, "
            f"expected error {fitted.error_before:.4f} before, {fitted.error_after:.4f} after"
        )


@app.command()
def predict(
    bundle: BundleFolder,
    data: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="folder of a graph, labels not needed, or of a client"),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="new table: .parquet, .csv or .jsonl")],
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="also write the evidence of every node to this file"
        ),
    ] = None,
) -> None:
    """Predict nodes that no client ever saw, with their evidence; Flower need not run."""
    from dance_flwr.api.prediction.bundle import Bundle
    from dance_flwr.api.prediction.table import predict as write

    write(Bundle.open(bundle), data, out, evidence, typer.echo)
