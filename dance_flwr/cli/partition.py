"""`dance-flwr partition`: divide a graph among clients, and encode their texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.options import (
    Clients,
    ConfigFiles,
    OptionalGraph,
    Seed,
    Settings,
    WithKeys,
    beginning,
)
from dance_flwr.config.paths import MANIFEST, check_out, shipped
from dance_flwr.config.plugins import PARTITIONERS
from dance_flwr.errors import UserError, counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from rich.table import Table

    from dance_flwr.data.graphs.graph import TextGraph
    from dance_flwr.data.partition import Partition

app = typer.Typer()


@app.command(cls=WithKeys, rich_help_panel="Own data")
def partition(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    clients: Clients = None,
    method: Annotated[
        str | None,
        typer.Option(help="partitioner, of `list keys`", autocompletion=PARTITIONERS.names),
    ] = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.json",
            help="new folder for manifest.json and client-K/, or new file for the manifest alone; "
            "default: where `dance-flwr run` with these keys finds it",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.json",
            help="reproduce this partition, and check that each client holds the same nodes; other "
            "keys are those of the partition",
        ),
    ] = None,
) -> None:
    """Divide a graph among clients, and write one folder per client.

    Options override --set, and --set overrides files, as for `dance-flwr run`.
    """
    from dance_flwr.config.text import read_config

    options = {"data": data, "clients": clients, "partition": method, "seed": seed}
    named = {key: value for key, value in options.items() if value is not None}
    settings = read_config(config or [], set_ or [], named)
    if out is not None:
        _refuse_existing(out)  # before minutes are spent on the partition
    elif manifest is None:
        from dance_flwr.data.prepare import prepare

        prepare(settings, typer.echo)
        return
    from dance_flwr.config.paths import data_root
    from dance_flwr.data import client_folder
    from dance_flwr.data import prepare as preparation
    from dance_flwr.data.imports.loading import load_graph
    from dance_flwr.data.partition import make_partition, write_manifest
    from dance_flwr.data.partition import manifest as manifest_of

    graph = load_graph(settings.data, data_root(settings))
    is_file = out is not None and out.suffix == ".json"
    if manifest is not None:
        divided, content = _reproduced(graph, shipped(manifest))
    elif is_file:
        divided = make_partition(graph, preparation.partition_spec(settings))
        content = manifest_of(graph, divided)
    else:
        # Client folders are for runs, so that what no run could learn from is refused.
        spec = preparation.partition_spec(settings)
        divided, content = preparation.checked_partition(graph, spec, typer.echo)
    if is_file and out is not None:
        write_manifest(out, content)
        typer.echo(f"manifest    {out}")
    elif out is not None:
        bank = preparation.text_bank(settings)
        client_folder.write_partition(graph, divided, content, out, bank, typer.echo)
        typer.echo(f"clients     {out}")
    for line in summary(content):
        typer.echo(line)


def _refuse_existing(out: Path) -> None:
    """Refuse to overwrite anything: client folders may hold runs and evidence."""
    file = out.suffix == ".json"
    if out.is_file() or (out.is_dir() and (file or any(out.iterdir()))):
        expected = "a new file" if file else "a new or empty folder"
        raise UserError(f"--out: expected {expected}, found {out}; choose another or remove it")
    check_out(out)


def _reproduced(graph: "TextGraph", path: Path) -> "tuple[Partition, dict[str, Any]]":
    from dance_flwr.data.partition import manifest, read_manifest, reproduce

    expected = read_manifest(path / MANIFEST if path.is_dir() else path)
    divided = reproduce(graph, expected)
    count = len(expected["clients"])
    typer.echo(
        f"partition   {count} of {counted(count, 'client')} hold the same nodes: every ids_sha256 "
        "agrees"
    )
    content = manifest(graph, divided)
    # The clients agree already; this hash covers the name and the origin of the data, too.
    if content["sha256"] == expected["sha256"]:
        typer.echo(f"manifest    sha256 {content['sha256']} agrees")
    else:
        typer.echo(
            "manifest    its sha256 differs: same clients, but another name, origin or edges of "
            "the data"
        )
    return divided, content


def table(content: dict[str, Any]) -> "Table":
    """Return a table with one row per client.

    Columns: nodes, edges, nodes per split, components, label skew and the most common label.
    """
    from dance_flwr.cli.report import new_table

    numbers = ("client", "nodes", "edges", "train/val/test", "components", "skew")
    rows = new_table((*numbers, "commonest label"), numbers)
    for k, (client, row) in enumerate(
        zip(content["clients"], content["report"]["clients"], strict=True)
    ):
        splits = client["nodes_per_split"]
        skew = "-" if row["non_iid"] is None else f"{row['non_iid']:.3f}"
        shares = row["label_shares"]
        top = max(shares, key=lambda name: shares[name], default="")
        common = "-" if row["non_iid"] is None else f"{shares[top]:.0%} {beginning(top, 24)}"
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
