"""`dance-flwr data`: fetch and import graphs, and show what graphs and partitions hold."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dance_flwr.cli.options import AsJson, DataRoot, graphs, print_json
from dance_flwr.config.paths import MANIFEST, shipped
from dance_flwr.errors import DataError, counted

app = typer.Typer(
    name="data",
    no_args_is_help=True,
    rich_help_panel="Own data",
    help="Fetch, import and show graphs.",
)

Text = Annotated[
    str, typer.Option(help="column or attribute of the texts; several separated by commas")
]
Label = Annotated[str, typer.Option(help="column or attribute of the labels; `none` for no labels")]
Id = Annotated[str, typer.Option("--id", help="column or attribute of the node ids")]
Source = Annotated[str, typer.Option(help="column of the first end of an edge")]
Target = Annotated[str, typer.Option(help="column of the second end of an edge")]
EdgeWeight = Annotated[
    str, typer.Option(help="column of the weights of edges; left out by default")
]
EdgeText = Annotated[
    str, typer.Option(help="`append` keeps relation and description of edges as texts")
]
EdgesFrom = Annotated[
    str, typer.Option(help="column of a node table with the ids of each node's neighbours")
]
Dangling = Annotated[
    str,
    typer.Option(
        help="edges that name an unknown node: refuse, drop (at most half), or the number to drop"
    ),
]
Nameless = Annotated[str, typer.Option(help="nodes without an id: refuse, or drop")]
Duplicates = Annotated[
    str, typer.Option(help="nodes with the same id: refuse, keep the first, or merge their texts")
]
Missing = Annotated[
    str, typer.Option(help="labels and texts that mean none, separated by commas, such as NA")
]
Quoting = Annotated[
    str, typer.Option(help="of CSV files: standard, backslash or none; detected by default")
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="the first row of a CSV file is data")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the report and store nothing")]
Unlabelled = Annotated[
    str | None,
    typer.Option(help="labels that mean no label, separated by commas; default: -1,nan,none,null"),
]
Encoding = Annotated[
    str, typer.Option(help="of text files that are not UTF-8 or UTF-16, such as latin-1")
]
Delimiter = Annotated[str, typer.Option(help="of CSV files; detected by default")]
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
    data_root: DataRoot = None,
    split_index: Annotated[
        int, typer.Option(help="index of the official mask to use as the split", min=0)
    ] = 0,
) -> None:
    """Download a published graph, check it against the paper's table, and store it."""
    from dance_flwr.data.imports.fetch import fetch as get

    report = get(name, root_of(data_root), typer.echo, split_index)
    typer.echo(_counts(report))


@app.command(name="import")
def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER|FILE...", help="a graph, or tables of nodes and edges"),
    ],
    name: Annotated[
        str, typer.Option("--name", help="name to store the graph under; by default of the file")
    ] = "",
    text: Text = "",
    label: Label = "",
    id_: Id = "",
    source: Source = "",
    target: Target = "",
    edges_from: EdgesFrom = "",
    edge_weight: EdgeWeight = "",
    edge_text: EdgeText = "",
    dangling: Dangling = "refuse",
    nameless: Nameless = "refuse",
    duplicates: Duplicates = "refuse",
    unlabelled: Unlabelled = None,
    missing: Missing = "",
    encoding: Encoding = "",
    delimiter: Delimiter = "",
    quoting: Quoting = "",
    no_header: NoHeader = False,
    labels_from: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="verdicts that an audit page exported: their classes become labels, and how far "
            "reviewers agree is printed; repeatable, nodes on which they differ keep their label",
        ),
    ] = None,
    dry_run: DryRun = False,
    split_index: Annotated[
        int, typer.Option(help="index of the mask to use as the split", min=0)
    ] = 0,
    data_root: DataRoot = None,
) -> None:
    """Store a graph of your own under a name, and print what was read and what was left out.

    Reads tables (CSV, JSON, Parquet, Arrow, Excel, SQLite) or a folder of them, GraphML, GEXF, GML,
    JSON, RDF, a PyG .pt file, a saved data set, and a folder of Markdown notes.
    """
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.data.imports.importer import import_graph, look_at
    from dance_flwr.data.imports.options import UNLABELLED_VALUES, Options
    from dance_flwr.data.imports.report import summary_lines
    from dance_flwr.evidence.review import labels_of

    root = root_of(data_root)
    # Resolved, as `.` has no name; without `.graphml` or `.csv.gz`.
    name = name or paths[0].resolve().name.split(".")[0]
    options = Options(
        text=text,
        label=label,
        id=id_,
        source=source,
        target=target,
        edges_from=edges_from,
        edge_weight=edge_weight,
        edge_text=edge_text,
        dangling=dangling,
        nameless=nameless,
        duplicates=duplicates,
        unlabelled=UNLABELLED_VALUES if unlabelled is None else tuple(unlabelled.split(",")),
        missing=tuple(filter(None, missing.split(","))),
        encoding=encoding,
        delimiter=delimiter,
        quoting=quoting,
        header=not no_header,
        split_index=split_index,
        labels=labels_of(labels_from, typer.echo) if labels_from else {},
    )
    if dry_run:
        report = look_at(paths, name, options)
    else:
        report = import_graph(paths, name, root, options, tuple(DATASETS))
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
    data_root: DataRoot = None,
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

    from dance_flwr.data.imports.describe import QUANTILES, describe
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.terminal import console

    root = root_of(data_root)
    facts = describe(load_graph(name, root))
    _check(name, root)
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
    examples = Table("id", "class", "text", title="Three nodes, by length of text")
    for node, label, text in facts.examples:
        examples.add_row(escape(node), escape(label), escape(_short(text)))
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


def _check(name: str, root: Path) -> None:
    """Compare a stored graph with its report and its recorded files.

    Raises
    ------
    DataError : the graph is not as it was stored
    """
    from dance_flwr.data.graphs.catalogue import CATALOGUE, imported_graphs
    from dance_flwr.data.imports.describe import faults
    from dance_flwr.data.imports.importer import read_report

    if (folder := imported_graphs(root).get(name)) is None:
        return  # nothing was recorded of a folder or a built-in graph; reading found no fault
    if problems := faults(folder, name, root):
        raise DataError(
            f"{name}: {'; '.join(problems)}; remove {folder} and fetch or import it again"
        )
    if name in CATALOGUE:
        CATALOGUE[name].check(read_report(folder)["counts"])


def root_of(chosen: Path | None) -> Path:
    """Return the folder of prepared data, as an absolute path; None = the default."""
    from dance_flwr.config.paths import data_root
    from dance_flwr.config.sections import DataConfig

    return data_root(DataConfig(data_root=str(chosen) if chosen else ""))


def _counts(report: dict[str, Any]) -> str:
    counts = report.get("counts", {})
    parts = (
        ("nodes", "node", ""),
        ("edges", "edge", ""),
        ("directed_edges", "edge both ways", "edges both ways"),
        ("classes", "class", "classes"),
    )
    return ", ".join(counted(counts[key], *nouns) for key, *nouns in parts if key in counts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXAMPLE_CHARACTERS else line[:_EXAMPLE_CHARACTERS] + " ..."
