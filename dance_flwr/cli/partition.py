"""`dance-flwr partition`: create partitions, show them, and reproduce them from a manifest."""

from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.options import Clients, ConfigFiles, Graph, OptionalGraph, Settings
from dance_flwr.config.paths import MANIFEST, shipped
from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.config.sections import DataConfig
from dance_flwr.errors import UserError, counted

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    name="partition",
    no_args_is_help=True,
    help="Create, show and reproduce partitions of a graph among clients.",
)

Encode = Annotated[
    bool, typer.Option("--encode/--no-encode", help="encode the texts into the client folders")
]


Partitioner = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="louvain (default), metis, label-dirichlet, random or by-column",
        autocompletion=PARTITIONERS.names,
    ),
]


@app.command()
def make(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="new folder for manifest.json and client-K/")
    ],
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    clients: Clients = None,
    method: Partitioner = None,
    seed: Annotated[int | None, typer.Option(help="seed of partition and split")] = None,
    resolution: Annotated[float | None, typer.Option(help="Louvain resolution")] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="label-dirichlet: concentration; lower = more skewed labels"),
    ] = None,
    train_ratio: Annotated[
        float | None, typer.Option(help="training share of the labelled nodes")
    ] = None,
    val_ratio: Annotated[float | None, typer.Option(help="validation share")] = None,
    test_ratio: Annotated[float | None, typer.Option(help="test share")] = None,
    encode: Encode = True,
    manifest_only: Annotated[
        bool,
        typer.Option(
            "--manifest-only",
            help="write only the manifest: into FOLDER, or to FOLDER itself if it ends in .json",
        ),
    ] = False,
) -> None:
    """Divide a graph among clients and write one folder per client.

    Options override --set, and --set overrides files, as for `dance-flwr run`.
    """
    from dance_flwr.config.reading import read_config

    options = {
        "data": data,
        "clients": clients,
        "partition": method,
        "seed": seed,
        "resolution": resolution,
        "dirichlet-alpha": alpha,
        "train-ratio": train_ratio,
        "val-ratio": val_ratio,
        "test-ratio": test_ratio,
    }
    named = {key: value for key, value in options.items() if value is not None}
    settings = read_config(config or [], set_ or [], named)
    # Before minutes are spent on the partition.
    _refuse_existing(out, manifest_only)
    _write(settings, out, encode, manifest_only)


@app.command()
def show(
    path: Annotated[
        Path,
        typer.Argument(metavar="FOLDER|MANIFEST", help="folder of a partition, or its manifest"),
    ],
) -> None:
    """Print sizes, kept edges and label skew of a partition."""
    from dance_flwr.data.partition import read_manifest
    from dance_flwr.terminal import console

    path = shipped(path)
    content = read_manifest(path / MANIFEST if path.is_dir() else path)
    console().print(table(content))
    for line in summary(content):
        typer.echo(line)


@app.command(name="from-manifest")
def from_manifest(
    path: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="manifest.json of a partition, or its folder")
    ],
    data: Graph,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="also write the client folders to this new folder"),
    ] = None,
    encode: Encode = True,
) -> None:
    """Reproduce the partition of a manifest and check that each client holds the same nodes."""
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.data.partition import manifest, read_manifest, reproduce

    path = shipped(path)
    expected = read_manifest(path / MANIFEST if path.is_dir() else path)
    if out is not None:
        _refuse_existing(out, False)
    graph = load_graph(data)
    partition = reproduce(graph, expected)
    count = len(expected["clients"])
    typer.echo(
        f"partition   {count} of {counted(count, 'client')} hold the same nodes: every ids_sha256 "
        "agrees"
    )
    content = manifest(graph, partition)
    # The clients agree already; this hash covers the name and the origin of the data, too.
    if content["sha256"] == expected["sha256"]:
        typer.echo(f"manifest    sha256 {content['sha256']} agrees")
    else:
        typer.echo(
            "manifest    its sha256 differs: same clients, but another name, origin or edges of "
            "the data"
        )
    if out is not None:
        _write_folders(graph, partition, content, out, DataConfig() if encode else None)


def table(content: dict[str, Any]) -> "Table":
    """Return a table with one row per client.

    Columns: nodes, edges, nodes per split, components, label skew and the most common label.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = Table(box=SIMPLE_HEAD)
    for heading in ("client", "nodes", "edges", "train/val/test", "components", "skew"):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column("commonest label")  # the only column that shrinks on a narrow terminal
    for k, (client, row) in enumerate(
        zip(content["clients"], content["report"]["clients"], strict=True)
    ):
        splits = client["nodes_per_split"]
        skew = "-" if row["non_iid"] is None else f"{row['non_iid']:.3f}"
        shares = row["label_shares"]
        top = max(shares, key=lambda name: shares[name], default="")
        common = (
            "-"
            if row["non_iid"] is None
            else f"{shares[top]:.0%} {shorten(top, 24, placeholder='...')}"
        )
        parts = "/".join(f"{splits[part]:,}" for part in ("train", "val", "test"))
        rows.add_row(
            str(k),
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            parts,
            f"{row['components']:,}",
            skew,
            common,
        )
    return rows


def summary(content: dict[str, Any]) -> list[str]:
    """Return the settings and the overall figures of a partition, one line each."""
    from dance_flwr.data.partition.spec import REGIME

    spec, figures = content["spec"], content["report"]
    regime = [f"{name.replace('_', '-')} {spec[name]:g}" for name in REGIME if spec.get(name)]
    settings = {
        "louvain": f", resolution {spec['resolution']:g}",
        "label-dirichlet": f", alpha {spec['alpha']:g}",
    }
    outside = figures.get("outside")
    return [
        f"partition   {content['dataset']}, {spec['method']}, "
        f"{counted(spec['clients'], 'client')}, "
        f"seed {spec['seed']}{settings.get(spec['method'], '')}",
        *([f"regime      {', '.join(regime)}"] if regime else []),
        f"edges       {figures['kept_edges']:,} of {content['num_edges']:,} kept "
        f"({figures['kept_edges_ratio']:.1%})",
        f"modularity  {figures['modularity']:.3f}",
        f"label skew  {figures['non_iid']:.3f} "
        "(mean total variation distance; 0 = all clients alike)",
    ] + (
        [
            f"outside     {outside['nodes']:,} of {counted(content['num_nodes'], 'node')} have no "
            "client"
        ]
        if outside
        else []
    )


def _write(config: DataConfig, out: Path, encode: bool, manifest_only: bool) -> None:
    from dance_flwr.config.paths import data_root
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.data.partition import make_partition, manifest, write_manifest
    from dance_flwr.data.prepare import checked_partition, partition_spec

    spec = partition_spec(config)
    graph = load_graph(config.data, data_root(config))
    if manifest_only:
        content = manifest(graph, make_partition(graph, spec))
        file = out if out.suffix == ".json" else out / MANIFEST
        write_manifest(file, content)
        typer.echo(f"manifest    {file}")
    else:
        # Client folders are for runs, so that what no run could learn from is refused.
        partition, content = checked_partition(graph, spec, typer.echo)
        _write_folders(graph, partition, content, out, config if encode else None)
    for line in summary(content):
        typer.echo(line)


def _write_folders(
    graph: Any, partition: Any, content: dict[str, Any], out: Path, config: DataConfig | None
) -> None:
    """Write the client folders, with the texts encoded as `config` says; None = not encoded."""
    from dance_flwr.data import client_folder, prepare

    bank = None if config is None else prepare.text_bank(config)
    client_folder.write_partition(graph, partition, content, out, bank, typer.echo)
    typer.echo(f"clients     {out}")


def _refuse_existing(out: Path, manifest_only: bool) -> None:
    """Refuse to overwrite anything: client folders may hold runs and evidence.

    Raises
    ------
    UserError : `out` is a file or a non-empty folder, or cannot be created
    """
    from dance_flwr.config.outputs import check_out

    file = manifest_only and out.suffix == ".json"
    if out.is_file() or (out.is_dir() and (file or any(out.iterdir()))):
        expected = "a new file" if file else "a new or empty folder"
        raise UserError(f"--out: expected {expected}, found {out}; choose another or remove it")
    check_out(out)
