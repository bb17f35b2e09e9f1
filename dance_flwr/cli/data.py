"""`dance-flwr data`: fetch and import graphs, and show what graphs and partitions hold."""

from collections.abc import Callable
from dataclasses import asdict, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from dance_flwr.cli.options import AsJson, beginning, graphs, print_json
from dance_flwr.config.paths import MANIFEST, shipped
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import counted

app = typer.Typer(
    name="data",
    no_args_is_help=True,
    rich_help_panel="Own data",
    help="Fetch, import and show graphs.",
)

_EXAMPLE_CHARACTERS = 240


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="name of a graph, as `list graphs` prints it",
            autocompletion=graphs,
        ),
    ],
    split_index: Annotated[
        int, typer.Option(help="index of the official mask to use as the split", min=0)
    ] = 0,
) -> None:
    """Download a published graph, check it against the paper's table, and store it."""
    from dance_flwr.data.imports.fetch import fetch as get

    report = get(name, _root(), typer.echo, split_index)
    typer.echo(_counts(report))


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of `Options` in place of `**options`."""
    own = [each for each in signature(command).parameters.values() if each.kind != each.VAR_KEYWORD]
    further = []
    for item in fields(Options):
        if text := item.metadata.get("help"):
            default = ",".join(item.default) if isinstance(item.default, tuple) else item.default
            further.append(
                Parameter(
                    item.name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=Annotated[type(default), typer.Option(help=text)],
                )
            )
    command.__signature__ = Signature([*own, *further])  # type: ignore[attr-defined]
    return command


@app.command(name="import")
@_with_options
def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER|FILE...", help="a graph, or tables of nodes and edges"),
    ],
    name: Annotated[
        str, typer.Option("--name", help="name to store the graph under; by default of the file")
    ] = "",
    no_header: Annotated[
        bool, typer.Option("--no-header", help="the first row of a CSV file is data")
    ] = False,
    labels_from: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="verdicts that an audit page exported: their classes become labels, and how far "
            "reviewers agree is printed; repeatable, nodes on which they differ keep their label",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the report and store nothing")
    ] = False,
    **options: Any,
) -> None:
    """Store a graph of your own under a name, and print what was read and what was left out.

    Reads tables (CSV, JSON, Parquet, Arrow, Excel, SQLite) or a folder of them, GraphML, GEXF, GML,
    JSON, RDF, a PyG .pt file, a saved data set, and a folder of Markdown notes.
    """
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.data.imports.importer import import_graph, look_at
    from dance_flwr.data.imports.report import summary_lines
    from dance_flwr.evidence.review import labels_of

    root = _root()
    # Resolved, as `.` has no name; without `.graphml` or `.csv.gz`.
    name = name or paths[0].resolve().name.split(".")[0]
    options["unlabelled"] = tuple(options["unlabelled"].split(","))
    options["missing"] = tuple(filter(None, options["missing"].split(",")))
    labels = labels_of(labels_from, typer.echo) if labels_from else {}
    chosen = Options(**options, header=not no_header, labels=labels)
    if dry_run:
        report = look_at(paths, name, chosen)
    else:
        report = import_graph(paths, name, root, chosen, tuple(DATASETS))
        typer.echo(f"{name} is at {root / 'graphs' / name}")
    typer.echo(_counts(report))
    for line in summary_lines(report):
        typer.echo(line)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="name or folder of a graph, or folder or manifest of a partition",
            autocompletion=graphs,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Print counts, degrees, text lengths and labels of a graph, or the clients of a partition.

    A stored graph is compared with its report and its recorded files.
    """
    if (manifest := _manifest_of(name)) is not None:
        _show_partition(manifest, as_json)
        return
    from rich.markup import escape
    from rich.table import Table

    from dance_flwr.data.imports.describe import QUANTILES, check_stored, describe
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.terminal import console

    root = _root()
    graph = load_graph(name, root)
    facts = describe(graph)
    check_stored(graph, name, root)
    if as_json:
        print_json({"name": name, "quantiles": QUANTILES, **asdict(facts)})
        return
    counts = Table("what", "count", title=escape(name))
    for what, number in facts.counts.items():
        counts.add_row(what, f"{number:,}")
    counts.add_row("edge homophily", f"{facts.homophily:.3f}")
    spread = Table("", *(f"{q} %" for q in QUANTILES), "mean", title="Distributions")
    for what, values in (("degree", facts.degrees), ("characters per text", facts.lengths)):
        spread.add_row(what, *(f"{v:,.0f}" for v in values[:-1]), f"{values[-1]:,.1f}")
    labels = Table("class", "nodes", "", title="Labels")
    largest = max(facts.histogram.values(), default=0) or 1
    for label, number in facts.histogram.items():
        labels.add_row(escape(label), f"{number:,}", "#" * round(30 * number / largest))
    examples = Table("id", "class", "text", title="Examples, by length of text")
    for node, label, text in facts.examples:
        examples.add_row(
            escape(node),
            escape(label),
            escape(beginning(text, _EXAMPLE_CHARACTERS)),
        )
    for table in (counts, spread, labels, examples):
        console().print(table)


def _manifest_of(name: str) -> Path | None:
    """Return the manifest of the partition that a user names; None for a graph."""
    path = shipped(Path(name))
    if (path / MANIFEST).is_file():
        return path / MANIFEST
    is_manifest = path.suffix == ".json" and path.is_file() and b"ids_sha256" in path.read_bytes()
    return path if is_manifest else None


def _show_partition(manifest: Path, as_json: bool) -> None:
    from dance_flwr.cli.partition import summary, table
    from dance_flwr.data.partition import read_manifest
    from dance_flwr.terminal import console

    content = read_manifest(manifest)
    if as_json:
        print_json(content["report"])
    else:
        console().print(table(content))
        typer.echo("\n".join(summary(content)))


def _root() -> Path:
    from dance_flwr.config.paths import data_root
    from dance_flwr.config.sections import DataConfig

    return data_root(DataConfig())


def _counts(report: dict[str, Any]) -> str:
    counts = report.get("counts", {})
    parts = (
        ("nodes", "node", ""),
        ("edges", "edge", ""),
        ("directed_edges", "edge both ways", "edges both ways"),
        ("classes", "class", "classes"),
    )
    return ", ".join(counted(counts[key], *nouns) for key, *nouns in parts if key in counts)
