"""`dance-flwr export`, `predict`, `worth` and `stats`: use a model, say what joining brings."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import AsJson, ClientFolder, FinishedRun, print_json

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
    from dance_flwr.api.bundle import export as write

    bundle = write(run, out, client_folder)
    typer.echo(f"bundle      {out}, model {bundle.model_id}")
    typer.echo(f"calibration {bundle.calibration}")


@app.command()
def personal(
    bundle: BundleFolder,
    client_folder: Annotated[
        Path, typer.Option(metavar="CLIENT_FOLDER", help="prepared as the bundle's agreement says")
    ],
    out: Annotated[Path, typer.Option(metavar="BUNDLE", help="new folder")],
) -> None:
    """Mix the model of a bundle with one that a client trains alone: to join after the run."""
    from dance_flwr.api.bundle import Bundle, personalised

    written = personalised(Bundle.open(bundle), client_folder, out)
    typer.echo(
        f"bundle      {out}, {written.facts['own']['share']:.1f} of it the client's own model"
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
    from dance_flwr.api.bundle import Bundle
    from dance_flwr.api.prediction_table import predict as write

    write(Bundle.open(bundle), data, out, evidence, typer.echo)


@app.command()
def worth(run: FinishedRun, client_folder: ClientFolder = None) -> None:
    """Say what joining was worth to each client of a run with `personal` models.

    Compares, on the client's own test nodes, the model that it trained alone, the global model, and
    what it deploys.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from dance_flwr.api import evaluation
    from dance_flwr.terminal import console

    names = tuple(evaluation.MODELS.values())
    table = Table(box=SIMPLE_HEAD, title="accuracy on test nodes, in %")
    for heading in ("client", "test nodes", *names):
        table.add_column(heading, justify="right")
    sentences = []
    for row in evaluation.worth(run, client_folder):
        cells = [_percent(row.accuracy[name]) for name in names]
        table.add_row(str(row.client), str(row.nodes), *cells)
        sentences.append(f"client {row.client}: {row.sentence}")
    console().print(table)
    for sentence in sentences:
        typer.echo(sentence)


@app.command()
def stats(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER|FILE.json", help="graphs, clients, partitions, or counts of --out"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="also write the sums, to be added up")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count classes, degrees and lengths of texts before any training, summed over all sources."""
    from dance_flwr.config.outputs import check_out
    from dance_flwr.data.stats import lines_of, summed
    from dance_flwr.disk import write_json

    if out is not None:
        check_out(out)
    counted = summed(sources)
    print_json(counted) if as_json else typer.echo("\n".join(lines_of(counted)))
    if out is not None:
        write_json(out, counted)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
