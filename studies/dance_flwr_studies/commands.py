"""`dance-flwr experiment`, `tune` and `tables`: run the protocols of a study, tabulate results."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from dance_flwr.cli.options import Settings, SpaceSeparated, graphs
from dance_flwr.config.plugins import METHODS
from dance_flwr_studies import EXPERIMENTS, summary

app = typer.Typer()


StudyFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="folder of the study")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="number of worker processes; default: physical cores", min=1),
]

_PLACES = ("--out", "--jobs", "--shard")  # where and how a command runs


class ExperimentCommand(SpaceSeparated):
    """The command `experiment`, whose help ends with the list of experiments."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Append the names and one line on each experiment."""
        names = "\n".join(f"{name:14s} {summary(name)}" for name in EXPERIMENTS)
        # After \b click leaves lines as they are.
        self.help = f"{self.help}\n\n\b\n{names}\n"
        super().format_help(ctx, formatter)


@app.command(cls=ExperimentCommand, rich_help_panel="Study")
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="one of the experiments above", autocompletion=EXPERIMENTS.names
        ),
    ],
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--datasets",
            help="names of data sets, or folders of graphs",
            autocompletion=graphs,
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            help="names of methods; default: those of the experiment",
            autocompletion=METHODS.names,
        ),
    ] = None,
    ratios: Annotated[
        list[float] | None,
        typer.Option(help="condensation ratios of main-table; default: those of the paper"),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="seeds of partition, split, model and training")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="communication rounds of every run", min=1)
    ] = None,
    set_: Settings = None,
    jobs: Jobs = None,
    out: StudyFolder = Path("study"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the grid without running it")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="also repeat runs that exist")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE", help="run only cells with this label; --dry-run prints them"
        ),
    ] = None,
    shard: Annotated[
        str,
        typer.Option(metavar="i/n", help="run share i of n of the grid, 1 <= i <= n"),
    ] = "",
) -> None:
    """Run the missing cells of an experiment and store them in a study folder.

    NAME comes first; several values may follow one flag: --datasets cora citeseer
    """
    from dance_flwr_studies.engine.start import start

    lists = {"datasets": datasets, "methods": methods, "ratios": ratios, "seeds": seeds}
    request: dict[str, Any] = {**lists, "rounds": rounds}
    # For a reader to repeat on another machine, so without places and numbers of jobs.
    command = shlex.join(["dance-flwr", *portable_words(sys.argv[1:])])
    how: dict[str, Any] = {"jobs": jobs, "dry_run": dry_run, "again": again, "labels": where or []}
    how |= {"shard": shard, "command": command}
    code = start(name, request, set_ or [], out, **how)
    if code:
        raise typer.Exit(code)


@app.command(rich_help_panel="Study")
def tables(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY",
            help="a study folder or a .jsonl file of rows",
        ),
    ] = Path("study"),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="folder for the pages, the scores of all runs (CSV) and the figures",
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="also write compact rows to this file")
    ] = None,
    update: Annotated[
        bool,
        typer.Option("--update", help="with --export: keep rows of the file that the study lacks"),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="also replace the text between <!-- begin NAME --> and <!-- end NAME -->",
        ),
    ] = None,
) -> None:
    """Write the tables and figures of a study."""
    from dance_flwr_studies.engine.rows import load_rows
    from dance_flwr_studies.reports.report import check_outputs, export_into, insert, write_report

    folder = out or (path / "report" if path.is_dir() else path.parent / "report")
    check_outputs(folder, export, into)
    rows = load_rows(path)
    if export is not None:
        export_into(path, export, typer.echo, update)
    sections = write_report(rows, folder, typer.echo)
    if into is not None:
        insert(sections, folder, into, typer.echo)


@app.command(cls=SpaceSeparated, rich_help_panel="Study")
def tune(
    dataset: Annotated[
        str,
        typer.Option(help="name of a data set, or folder of a graph", autocompletion=graphs),
    ],
    method: Annotated[str, typer.Option(help="name of the method", autocompletion=METHODS.names)],
    trials: Annotated[
        int, typer.Option(help="number of settings to try, including the base configuration", min=1)
    ] = 16,
    rounds: Annotated[int, typer.Option(help="communication rounds of every run", min=1)] = 60,
    seeds: Annotated[
        list[int] | None, typer.Option(help="seeds over which a trial is averaged; default: 0")
    ] = None,
    set_: Settings = None,
    jobs: Jobs = None,
    out: StudyFolder = Path("study"),
    write: Annotated[
        bool, typer.Option("--write", help="write the best settings to tuned/ of the package")
    ] = False,
) -> None:
    """Search hyper-parameters by validation accuracy, with the same budget for every method."""
    from dance_flwr.config.text import read_values
    from dance_flwr_studies.engine.folder import Study
    from dance_flwr_studies.engine.runner import default_jobs
    from dance_flwr_studies.engine.tune import Search, search, write_tuned

    request = Search(
        dataset, method, trials, rounds, tuple(seeds or [0]), read_values([], set_ or [])
    )
    best = search(request, Study(out), jobs or default_jobs(), typer.echo)
    typer.echo(
        f"best        trial {best['trial'] + 1}: {best['val_accuracy']:.4f} on validation, "
        f"{best['values']}"
    )
    if write:
        typer.echo(f"written     {write_tuned(request, best)}")


def portable_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command that decide its results, folders by their names."""
    portable: list[str] = []
    skip = False
    for word in words:
        placement = word in ("--dry-run", "--again") or word.startswith(_PLACES)
        if not skip and not placement:
            option, equals, value = word.rpartition("=")
            folder = Path(value)
            portable.append(option + equals + (folder.name if folder.is_absolute() else value))
        skip = word in _PLACES
    return portable
