"""`dance-flwr experiment`, `report` and `tune`: run the protocols of a study, tabulate results."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from dance_flwr.cli import completion
from dance_flwr.cli.options import (
    Again,
    AsJson,
    DryRun,
    ExportedRows,
    Graphs,
    Jobs,
    KeepExperiments,
    KeepRows,
    KnownRows,
    Labels,
    Live,
    Methods,
    NameOfExperiment,
    PageOfTables,
    ReportPlace,
    RunPage,
    RunSettings,
    ShardOfCells,
    SpaceSeparated,
    StudyFolder,
    Trackers,
    print_json,
    run_folder,
)
from dance_flwr.config.plugins import METHODS
from dance_flwr.errors import UserError

app = typer.Typer()

_PLACES = ("--out", "--jobs", "--known", "--shard")  # where and how a command runs


class ExperimentCommand(SpaceSeparated):
    """The command `experiment`, whose help ends with the list of experiments."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Append the names and one line on each experiment."""
        from dance_flwr.study import EXPERIMENTS, summary

        names = "\n".join(f"{name:14s} {summary(name)}" for name in EXPERIMENTS)
        # After \b click leaves lines as they are.
        self.help = f"{self.help}\n\n\b\n{names}\n"
        super().format_help(ctx, formatter)


@app.command(cls=ExperimentCommand)
def experiment(
    name: NameOfExperiment,
    datasets: Graphs = None,
    methods: Methods = None,
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
    set_: RunSettings = None,
    jobs: Jobs = None,
    out: StudyFolder = Path("study"),
    dry_run: DryRun = False,
    again: Again = False,
    where: Labels = None,
    known: KnownRows = None,
    shard: ShardOfCells = "",
) -> None:
    """Run the grid of an experiment, or what is missing of it, and store it in a study folder.

    NAME comes first; several values may follow one flag: --datasets cora citeseer
    """
    from dance_flwr.study.engine.start import Execution, start
    from dance_flwr.study.reports.figures import why_no_figures

    # Before hours of runs, not after them.
    if missing := why_no_figures():
        typer.echo(missing)
    lists = {"datasets": datasets, "methods": methods, "ratios": ratios, "seeds": seeds}
    request: dict[str, Any] = {**lists, "rounds": rounds}
    # For a reader to repeat on another machine, so without places and numbers of jobs.
    command = shlex.join(["dance-flwr", *portable_words(sys.argv[1:])])
    execution = Execution(
        jobs=jobs,
        dry_run=dry_run,
        again=again,
        labels=where or [],
        known=known,
        shard=shard,
        command=command,
    )
    code = start(name, request, set_ or [], out, execution)
    if code:
        raise typer.Exit(code)


@app.command()
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...|STUDY",
            parser=run_folder,
            autocompletion=completion.runs,
            help="one run or several, `latest`; or a study folder or a .jsonl file of rows; "
            "default: study",
        ),
    ] = None,
    out: ReportPlace = None,
    export: ExportedRows = None,
    update: KeepRows = False,
    replace: KeepExperiments = False,
    into: PageOfTables = None,
    html: RunPage = False,
    live: Live = False,
    track: Trackers = None,
    as_json: AsJson = False,
) -> None:
    """Print a run's scores and costs, or write tables and figures of runs or of a study."""
    from dance_flwr.runs.facts import is_run

    path, *others = paths or [Path("study")]
    if others or html or live or track or as_json or is_run(path):
        of_study = {"--export": export, "--update": update, "--replace": replace, "--into": into}
        if given := [name for name, value in of_study.items() if value]:
            raise UserError(
                f"report: expected the options of one run, found {', '.join(given)} of a study; "
                "leave one of them out"
            )
        if as_json:
            _print_facts(path, others or out or html or live or track)
        else:
            _report_run(path, others, out, html, live, track or [])
        return
    from dance_flwr.study.engine.rows import load_rows
    from dance_flwr.study.reports.report import check_outputs, export_into, insert, write_report

    folder = out or (path / "report" if path.is_dir() else path.parent / "report")
    check_outputs(folder, export, into)
    rows = load_rows(path)
    if export is not None:
        export_into(path, export, typer.echo, update, replace)
    sections = write_report(rows, folder, typer.echo)
    if into is not None:
        insert(sections, folder, into, typer.echo)


def _print_facts(run: Path, others: Any) -> None:
    """Print the scores and costs of a run for programs."""
    from dance_flwr.runs.reader import read_result, short_result

    if others:
        raise UserError("report: expected one run and no other option with --json, found others")
    print_json(short_result(read_result(run.expanduser().resolve())))


def _report_run(
    run: Path, others: list[Path], out: Path | None, html: bool, live: bool, track: list[str]
) -> None:
    """Print the scores of a run, or write tables or a page of runs and hand one to trackers."""
    folder = run.expanduser().resolve()
    if not (html or track or live) and out:
        from dance_flwr.study.reports.run_comparison import compare

        compare([folder, *(other.expanduser() for other in others)], out, typer.echo)
        return
    if (out or others or live) and not (html or (track and not out and not others)):
        raise UserError(
            "report: expected --html for a page, --out DIR for tables, or --track of one run, "
            "found none; add one of them"
        )
    if not (html or track):
        from dance_flwr.cli.results import accuracy_table, details
        from dance_flwr.runs.reader import read_result
        from dance_flwr.terminal import console

        result = read_result(folder)
        console().print(accuracy_table(result))
        for line in details(folder, result):
            print(line)
        return
    from dance_flwr.config.paths import PAGE
    from dance_flwr.pages.run_page import EVERY_SECONDS, report_run

    report_run(
        folder,
        [other.expanduser().resolve() for other in others],
        page=(out or folder / PAGE) if html else None,
        trackers=track,
        every=EVERY_SECONDS if live else None,
        log=typer.echo,
    )


@app.command(cls=SpaceSeparated)
def tune(
    dataset: Annotated[
        str,
        typer.Option(
            help="name of a data set, or folder of a graph", autocompletion=completion.graphs
        ),
    ],
    method: Annotated[str, typer.Option(help="name of the method", autocompletion=METHODS.names)],
    trials: Annotated[
        int, typer.Option(help="number of settings to try, including the base configuration", min=1)
    ] = 16,
    rounds: Annotated[int, typer.Option(help="communication rounds of every run", min=1)] = 60,
    seeds: Annotated[
        list[int] | None, typer.Option(help="seeds over which a trial is averaged; default: 0")
    ] = None,
    set_: RunSettings = None,
    jobs: Jobs = None,
    out: StudyFolder = Path("study"),
    write: Annotated[
        bool, typer.Option("--write", help="write the best settings to configs/tuned/")
    ] = False,
) -> None:
    """Search hyper-parameters by validation accuracy, with the same budget for every method."""
    from dance_flwr.config.reading import read_values
    from dance_flwr.study.engine.folder import Study
    from dance_flwr.study.engine.runner import default_jobs
    from dance_flwr.study.engine.tune import Search, search, write_tuned

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
