"""`dance-flwr evidence`: what predictions rest on."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli.options import ClientFolder, FinishedRun, Group, run_argument
from dance_flwr.errors import UserError

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FOLDER", help="folder of a graph, or of a client: for bundles"),
]

app = typer.Typer()
evidence = typer.Typer(
    name="evidence",
    no_args_is_help=True,
    help="Show and verify the texts behind each prediction, in a terminal or in a browser.",
)
app.add_typer(evidence, cls=Group, rich_help_panel="Look")


@evidence.command()
def show(
    run: FinishedRun,
    client: Annotated[int, typer.Option(help="number of the client, from 0")] = 0,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="id of the node; default: the most certain prediction that is stored"
        ),
    ] = None,
    client_folder: ClientFolder = None,
    data: Data = None,
) -> None:
    """Print the evidence of one node: the answer, how it adds up, and texts with marked passages.

    What the run did not store is computed with its model. With --data, RUN is a bundle of
    `dance-flwr export`, and --node any node of the data.
    """
    if data is not None:
        from dance_flwr.api.bundle import Bundle
        from dance_flwr.api.predicting import show_node

        if node is None:
            raise UserError("--node: expected the id of a node beside --data, found none")
        # Progress on stderr: stdout is the evidence alone.
        quiet = partial(typer.echo, err=True)
        shown = show_node(Bundle.open(run), data, node, quiet)
    else:
        from dance_flwr.runs.evidence import show_evidence

        shown = show_evidence(run, client, node, client_folder)
    typer.echo(shown, nl=False)


@evidence.command()
def verify(
    run: FinishedRun,
    client_folder: ClientFolder = None,
    data: Data = None,
    packs: Annotated[
        Path | None,
        typer.Option(
            "--evidence",
            metavar="FILE.jsonl",
            help="evidence that `predict` wrote, beside --data",
        ),
    ] = None,
) -> None:
    """Check files, passages and importance against the run's record, the texts and the model.

    With --data and --evidence, RUN is a bundle of `dance-flwr export`.
    """
    if data is not None or packs is not None:
        from dance_flwr.api.bundle import Bundle
        from dance_flwr.api.prediction_table import verify as verify_file

        if data is None or packs is None:
            raise UserError("expected --data beside --evidence, found one without the other")
        verify_file(Bundle.open(run), data, packs, typer.echo)
        return
    from dance_flwr.runs.evidence import verify_evidence

    verify_evidence(run, client_folder, typer.echo)


@evidence.command()
def page(
    source: Annotated[
        Path,
        run_argument(
            "folder of a finished run, `latest`, or one that `export` wrote", "RUN|BUNDLE"
        ),
    ],
    client: Annotated[int, typer.Option(help="number of the client, from 0")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="default: audit.html where the run is kept at the client"
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IDS",
            help="comma-separated ids; repeatable; default: doubtful predictions first",
        ),
    ] = None,
    max_nodes: Annotated[
        int, typer.Option(help="maximum number of nodes with evidence, doubtful ones first", min=1)
    ] = 200,
    client_folder: ClientFolder = None,
    data: Data = None,
) -> None:
    """Write a self-contained HTML page of a client's evidence; it holds source texts.

    The run is verified first, and the page says with what result. With --data, evidence of any
    graph or client's folder under the model of a bundle.
    """
    from dance_flwr.pages.audit import open_bundle, open_run, write_page
    from dance_flwr.pages.document import check_replaceable

    if out is not None:
        check_replaceable(out)  # before minutes are spent
    quiet = partial(typer.echo, err=True)
    with (
        open_run(source, client, client_folder, quiet)
        if data is None
        else open_bundle(source, data, quiet)
    ) as subject:
        write_page(subject, out, nodes or [], max_nodes, typer.echo)
