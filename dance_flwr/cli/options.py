"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="TOML file; repeatable, later files win"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="set one key; repeatable, overrides files"),
]
FinishedRun = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="folder of a finished run, the one with result.json"),
]
ClientFolder = Annotated[
    Path | None,
    typer.Option(
        "--client-folder",
        metavar="CLIENT_FOLDER",
        help="folder of the client, if the partition is not on this machine",
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", metavar="DIR", help="folder that holds prepared data"),
]
Graph = Annotated[
    str, typer.Option("--data", metavar="GRAPH", help="name of a data set, or folder of your graph")
]
OptionalGraph = Annotated[
    str | None,
    typer.Option("--data", metavar="GRAPH", help="name of a data set, or folder of your graph"),
]
Clients = Annotated[int | None, typer.Option("--clients", help="number of clients")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="seed of partition, split, model and training")
]
StudyFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="folder of the study")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="number of worker processes; default: physical cores", min=1),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the grid without running it")]
Again = Annotated[bool, typer.Option("--again", help="also repeat runs that exist")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL=VALUE", help="run only cells with this label; --dry-run prints them"
    ),
]
KnownRows = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help="skip cells that the rows of this file hold"),
]
ShardOfCells = Annotated[
    str,
    typer.Option(metavar="i/n", help="run share i of n of the grid, 1 <= i <= n"),
]
RunSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="set one key of every run; repeatable, overrides everything else",
    ),
]
ExportedRows = Annotated[
    Path | None, typer.Option(metavar="FILE.jsonl", help="also write compact rows to this file")
]
KeepRows = Annotated[
    bool, typer.Option("--update", help="with --export: keep rows of the file that the study lacks")
]
KeepExperiments = Annotated[
    bool,
    typer.Option("--replace", help="with --export: keep experiments that the study lacks"),
]
PageOfTables = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.md",
        help="also replace the text between <!-- begin NAME --> and <!-- end NAME -->",
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="also store rounds and result in mlflow, tensorboard or trackio; repeatable",
    ),
]
RunPage = Annotated[
    bool,
    typer.Option("--html", help="write the page of a run, report.html in its folder or --out"),
]
Live = Annotated[
    bool, typer.Option("--live", help="update the page or tracker of a run until it ends")
]
