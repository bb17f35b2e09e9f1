"""`dance-flwr new`: look at files, store their graph, and write the configuration of a study."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.data import EdgeText, Id, Label, Source, Target, Text, root_of
from dance_flwr.cli.options import Clients, SpaceSeparated
from dance_flwr.errors import ColumnError, UserError

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.data.graphs.graph import TextGraph
    from dance_flwr.data.imports.options import Options

app = typer.Typer()
_TEXTS, _CHARACTERS = 5, 100  # texts that are shown, and of each


@app.command(cls=SpaceSeparated, rich_help_panel="Own data")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the study and of its graph")],
    files: Annotated[
        list[Path],
        typer.Option("--from", metavar="FILE...", help="what `dance-flwr data import` reads"),
    ],
    text: Text = "",
    label: Label = "",
    id_: Id = "",
    source: Source = "",
    target: Target = "",
    edge_text: EdgeText = "",
    clients: Clients = None,
) -> None:
    """Store the graph of your files, show what is in it, and write NAME/study.toml.

    A column that cannot be told is asked for on a terminal; elsewhere the option that names it is
    in the message.
    """
    from dance_flwr.config.paths import check_out
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.data.imports.importer import import_graph
    from dance_flwr.data.imports.options import Options
    from dance_flwr.data.imports.report import summary_lines
    from dance_flwr.disk import write_text

    study = Path(name) / "study.toml"
    check_out(study, "NAME")
    if study.exists():
        raise UserError(f"{study}: expected a new study, found one; choose another NAME")
    columns = Options(text, label, id=id_, source=source, target=target, edge_text=edge_text)
    graph, options = _read(files, columns)
    # Stored only now: what is refused or still asked for leaves nothing behind.
    root = root_of(None)
    report = import_graph(files, name, root, options, tuple(DATASETS))
    for line in summary_lines(report):
        typer.echo(line)
    typer.echo("texts")
    for node in range(0, graph.num_nodes, -(-graph.num_nodes // _TEXTS)):
        shown = " ".join(graph.texts[node].split())
        typer.echo(f"  {graph.ids[node]}: {shown[:_CHARACTERS]}")
    write_text(study, "\n".join(_keys(graph, name, clients)) + "\n")
    typer.echo(f"written     {study}\n\nNext:\n  dance-flwr run --config {quote(str(study))}")


def _read(files: list[Path], options: "Options") -> "tuple[TextGraph, Options]":
    """Return the graph in the files, and the options with the columns that were asked for."""
    from dance_flwr.data.imports.importer import read_graph

    while True:
        try:
            graph = read_graph(files, **asdict(options))
            if graph.class_names:
                return graph, options
            raise ColumnError(
                f"{files[0]}: expected a column of classes, found none of a usual name; name it "
                "with --label",
                "--label",
            )
        except ColumnError as error:
            if not sys.stdin.isatty():
                raise
            typer.echo(str(error))
            answer: dict[str, Any] = {error.option.removeprefix("--"): typer.prompt(error.option)}
            options = replace(options, **answer)


def _keys(graph: "TextGraph", name: str, clients: int | None) -> list[str]:
    """Return the lines of a configuration: one client per site, where the nodes name sites."""
    sites = len({*graph.site.tolist()} - {""}) if graph.site is not None else 0
    by_site = sites > 1 and clients in (None, sites)
    lines = ["# dance-flwr run --config study.toml; `dance-flwr list keys` has the keys"]
    lines += [f'data = "{name}"', 'method = "dance"', "rounds = 50"]
    lines += ['partition = "by-column"  # the column `site`'] if by_site else []
    return [*lines, f"clients = {clients or sites or 5}"]
