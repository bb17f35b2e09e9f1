"""`dance-flwr partition`: make partitions, look at them, and make them again from a manifest."""

from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.config.paths import MANIFEST
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from dance_flwr.data.partition import PartitionSpec
    from dance_flwr.data.text.bank import TextBank

DEFAULT = RunConfig()

app = typer.Typer(
    no_args_is_help=True, help="Make, show and reproduce partitions of a graph among clients."
)

Data = Annotated[str, typer.Option(help="data set name, or the folder of your own graph")]
Encode = Annotated[
    bool, typer.Option("--encode/--no-encode", help="encode the texts into the client folders")
]


@app.command()
def make(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="new folder of manifest.json and client-K/")
    ],
    data: Data = DEFAULT.data,
    clients: Annotated[int, typer.Option(help="number of clients")] = DEFAULT.clients,
    method: Annotated[
        str, typer.Option(help="louvain, metis, label-dirichlet, random or by-column")
    ] = DEFAULT.partition,
    seed: Annotated[int, typer.Option(help="seed of partition and split")] = DEFAULT.seed,
    resolution: Annotated[float, typer.Option(help="Louvain resolution")] = DEFAULT.resolution,
    alpha: Annotated[
        float, typer.Option(help="label-dirichlet: the lower, the more labels differ")
    ] = DEFAULT.dirichlet_alpha,
    train_ratio: Annotated[
        float, typer.Option(help="training share of the labelled nodes")
    ] = DEFAULT.train_ratio,
    val_ratio: Annotated[float, typer.Option(help="validation share")] = DEFAULT.val_ratio,
    test_ratio: Annotated[float, typer.Option(help="test share")] = DEFAULT.test_ratio,
    encode: Encode = True,
    manifest_only: Annotated[
        bool,
        typer.Option(
            "--manifest-only",
            help="write only the manifest, to FOLDER or, if it ends in .json, there",
        ),
    ] = False,
) -> None:
    """Divide a graph among clients and write one folder per client."""
    from dance_flwr.data.partition import PartitionSpec

    spec = PartitionSpec(
        method, clients, seed, resolution, train_ratio, val_ratio, test_ratio, alpha
    )
    _refuse_existing(out, manifest_only)
    _write(data, spec, out, encode, manifest_only)


@app.command()
def show(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER|MANIFEST", help="a partition's folder or its manifest")
    ],
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="also plot sizes and labels")
    ] = None,
) -> None:
    """Print sizes, kept edges and label skew of a partition."""
    from rich.console import Console

    from dance_flwr.data.partition import read_manifest

    content = read_manifest(path / MANIFEST if path.is_dir() else path)
    Console().print(table(content))
    for line in summary(content):
        typer.echo(line)
    if png is not None:
        from dance_flwr.data.partition.plot import plot

        plot(content, png)
        typer.echo(f"plot        {png}")


@app.command(name="from-manifest")
def from_manifest(
    path: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="manifest.json of a partition, or its folder")
    ],
    data: Data,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="also write the client folders here")
    ] = None,
    encode: Encode = True,
) -> None:
    """Make the clients of a manifest again and check that every one holds exactly the same nodes."""
    from dance_flwr.data import load_graph
    from dance_flwr.data.partition import manifest, read_manifest, reproduce

    expected = read_manifest(path / MANIFEST if path.is_dir() else path)
    if out is not None:
        _refuse_existing(out, False)
    graph = load_graph(data)
    partition = reproduce(graph, expected)
    count = len(expected["clients"])
    typer.echo(
        f"partition   {count} of {count} clients hold the same nodes: every ids_sha256 agrees"
    )
    made = manifest(graph, partition)
    if made["sha256"] == expected["sha256"]:
        typer.echo(f"manifest    sha256 {made['sha256']} agrees")
    else:
        typer.echo(
            "manifest    its sha256 differs: same clients, but the data's name, origin or edges are others"
        )
    if out is not None:
        _write_folders(graph, partition, made, out, encode)


def table(content: dict[str, Any]) -> "Table":
    """Return one row per client: nodes, edges, components, the commonest label and the distance to
    all labels.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD)
    for heading in ("client", "nodes", "edges", "train/val/test", "components", "skew"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("commonest label")  # the one column that gives way on a narrow terminal
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
        made.add_row(
            str(k),
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            parts,
            f"{row['components']:,}",
            skew,
            common,
        )
    return made


def summary(content: dict[str, Any]) -> list[str]:
    """Return what the partition is and what holds for it as a whole, one line each."""
    spec, figures = content["spec"], content["report"]
    settings = {
        "louvain": f", resolution {spec['resolution']:g}",
        "label-dirichlet": f", alpha {spec['alpha']:g}",
    }
    return [
        f"partition   {content['dataset']}, {spec['method']}, {spec['clients']} clients, seed {spec['seed']}"
        f"{settings.get(spec['method'], '')}",
        f"edges       {figures['kept_edges']:,} of {content['num_edges']:,} kept ({figures['kept_edges_ratio']:.1%})",
        f"modularity  {figures['modularity']:.3f}",
        f"label skew  {figures['non_iid']:.3f} (mean total variation distance; 0 = all clients alike)",
    ]


def _write(data: str, spec: "PartitionSpec", out: Path, encode: bool, manifest_only: bool) -> None:
    from dance_flwr.data import load_graph
    from dance_flwr.data.partition import make_partition, manifest, write_manifest

    graph = load_graph(data)
    partition = make_partition(graph, spec)
    content = manifest(graph, partition)
    if manifest_only:
        file = out if out.suffix == ".json" else out / MANIFEST
        write_manifest(file, content)
        typer.echo(f"manifest    {file}")
    else:
        _write_folders(graph, partition, content, out, encode)
    for line in summary(content):
        typer.echo(line)


def _write_folders(
    graph: Any, partition: Any, content: dict[str, Any], out: Path, encode: bool
) -> None:
    from dance_flwr.data import client_folder, prepare

    bank: TextBank | None = prepare.text_bank(DEFAULT) if encode else None
    client_folder.write_partition(graph, partition, content, out, bank, typer.echo)
    typer.echo(f"clients     {out}")


def _refuse_existing(out: Path, manifest_only: bool) -> None:
    """Keep what is there: a client folder may hold runs and evidence.

    Raises
    ------
    UserError : `out` is a file, or a folder that holds something
    """
    if manifest_only:
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(
            f"--out: expected a new or empty folder, found {out}; choose another or remove it"
        )
