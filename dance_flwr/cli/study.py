"""`dance-flwr experiment`, `report` and `tune`: run the protocols of the study, make tables, choose
settings.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand

from dance_flwr.experiments import EXPERIMENTS

_LISTS = ("--datasets", "--methods", "--ratios", "--seeds")
_NAMES = "\n".join(f"{name:14s} {listed.line}" for name, listed in EXPERIMENTS.items())
_HELP = f"""Run an experiment's grid, or what is missing of it, and keep every result in a study folder.

NAME comes first; several values may follow one flag: --datasets cora citeseer

\b
{_NAMES}
"""


class SpaceSeparated(TyperCommand):
    """A command whose list options take all the words that follow, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before every one of its values, as click wants it."""
        return super().parse_args(ctx, repeat_flags(args))


def repeat_flags(words: list[str]) -> list[str]:
    """Turn `--datasets a b` into `--datasets a --datasets b`; other words stay as they are."""
    made: list[str] = []
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word if word in _LISTS else ""
            made += [] if flag else [word]
        else:
            made += [flag, word] if flag else [word]
    return made


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="one of the experiments above")],
    datasets: Annotated[
        list[str] | None, typer.Option(help="data sets, or folders of graphs")
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="methods; the experiment's own where left out")
    ] = None,
    ratios: Annotated[
        list[float] | None,
        typer.Option(help="condensation ratios of main-table; the paper's where left out"),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="seeds of partition, split, model and training")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="communication rounds of every run", min=1)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="one key of every run; wins over all"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="worker processes; left out: physical cores", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of the study")] = Path("study"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the grid and run nothing")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="run also what is there already")] = False,
) -> None:
    """Run the grid of one protocol."""
    from dance_flwr.experiments.start import start

    asked: dict[str, Any] = {
        "datasets": datasets,
        "methods": methods,
        "ratios": ratios,
        "seeds": seeds,
    }
    asked |= {"rounds": rounds}
    command = shlex.join(["dance-flwr", *_what(sys.argv[1:])])
    code = start(
        name, asked, set_ or [], out, jobs=jobs, dry_run=dry_run, again=again, command=command
    )
    if code:
        raise typer.Exit(code)


def report(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="study folder, or a .jsonl file of rows")
    ] = Path("study"),
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder of report.md and figures")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="also write compact rows here")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="with --export: keep cells there that the study lacks")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="also replace the text between <!-- begin NAME --> and <!-- end NAME -->",
        ),
    ] = None,
) -> None:
    """Make tables and figures from the results of a study."""
    from dance_flwr.experiments.reporting import export_into, insert, write_report
    from dance_flwr.experiments.rows import load_rows

    rows = load_rows(path)
    if export is not None:
        export_into(path, export, typer.echo, update)
    folder = out or (path / "report" if path.is_dir() else path.parent / "report")
    sections = write_report(rows, folder, typer.echo)
    if into is not None:
        insert(sections, folder, into, typer.echo)


def tune(
    dataset: Annotated[str, typer.Option(help="data set, or folder of a graph")],
    method: Annotated[str, typer.Option(help="method")],
    trials: Annotated[
        int, typer.Option(help="settings tried, the base configuration among them", min=1)
    ] = 16,
    rounds: Annotated[int, typer.Option(help="communication rounds of every run", min=1)] = 60,
    seeds: Annotated[
        list[int] | None, typer.Option(help="seeds; a trial's score is their mean; left out: 0")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="one key of every run, not searched"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="worker processes; left out: physical cores", min=1)
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of the study")] = Path("study"),
    write: Annotated[
        bool, typer.Option("--write", help="write the best to configs/tuned/")
    ] = False,
) -> None:
    """Search hyper-parameters by validation accuracy, with the same budget for every method."""
    from dance_flwr.config.reading import read_values
    from dance_flwr.experiments.runner import default_jobs
    from dance_flwr.experiments.study import Study
    from dance_flwr.experiments.tune import Search, search, write_tuned

    wanted = Search(
        dataset, method, trials, rounds, tuple(seeds or [0]), read_values([], set_ or [])
    )
    best = search(wanted, Study(out), jobs or default_jobs(), typer.echo)
    typer.echo(
        f"best        trial {best['trial'] + 1}: {best['val_accuracy']:.4f} on validation, {best['values']}"
    )
    if write:
        typer.echo(f"written     {write_tuned(wanted, best)}")


def register(app: typer.Typer) -> None:
    """Add the commands of the study to the command line."""
    app.command(cls=SpaceSeparated, help=_HELP)(experiment)
    app.command()(report)
    app.command(cls=SpaceSeparated)(tune)


def _what(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the options that change where and how it runs, but no
    row.
    """
    kept: list[str] = []
    skip = False
    for word in words:
        if (
            not skip
            and word not in ("--dry-run", "--again")
            and not word.startswith(("--out", "--jobs"))
        ):
            kept.append(word)
        skip = word in ("--out", "--jobs")
    return kept
