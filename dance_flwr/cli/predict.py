"""`dance-flwr export` and `predict`: use the model of a run."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import run_argument
from dance_flwr.errors import UserError

app = typer.Typer()

BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="folder that `dance-flwr export` wrote")
]


@app.command(rich_help_panel="Look")
def export(
    source: Annotated[
        Path, run_argument("folder of a finished run, `latest`, or a bundle", "RUN|BUNDLE")
    ],
    out: Annotated[Path, typer.Option(metavar="BUNDLE", help="new folder")],
    client_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="CLIENT_FOLDER",
            help="of a run: the client, if the partition is not on this machine; of a bundle: the "
            "client that joins late, prepared as the bundle's agreement says",
        ),
    ] = None,
) -> None:
    """Write a bundle that predicts with the model of a run; it holds no text, edge or evidence.

    From a BUNDLE, write its model mixed with one that a client trains alone.
    """
    from dance_flwr.api.bundle import FACTS, Bundle, personalised
    from dance_flwr.api.bundle import export as write

    if not (source / FACTS).is_file():
        bundle = write(source, out, client_folder)
        typer.echo(f"bundle      {out}, model {bundle.model_id}")
        typer.echo(f"calibration {bundle.calibration}")
        return
    if client_folder is None:
        raise UserError("--client-folder: expected a client beside a bundle, found none; add it")
    written = personalised(Bundle.open(source), client_folder, out)
    share = written.facts["own"]["share"]
    typer.echo(f"bundle      {out}, {share:.1f} of it the client's own model")


@app.command(rich_help_panel="Look")
def predict(
    bundle: BundleFolder,
    data: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="folder of a graph, labels not needed, or of a client"),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="new table: .parquet, .jsonl, or .csv, with ' before what would be a formula",
        ),
    ],
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="also write the evidence of every node to this file"
        ),
    ] = None,
) -> None:
    """Predict nodes that no client ever saw, with their evidence; no federation is needed."""
    from dance_flwr.api.bundle import Bundle
    from dance_flwr.api.prediction_table import predict as write

    write(Bundle.open(bundle), data, out, evidence, typer.echo)
