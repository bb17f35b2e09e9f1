"""`dance-flwr report`: the scores and costs of a run, its page, and trackers."""

from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.cli import completion
from dance_flwr.cli.options import AsJson, Live, PageFile, RunPage, Trackers, print_json, run_folder
from dance_flwr.errors import UserError

app = typer.Typer()


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            parser=run_folder,
            autocompletion=completion.runs,
            help="folder of a run, or `latest`; with --html more runs to compare it with",
        ),
    ],
    out: PageFile = None,
    html: RunPage = False,
    live: Live = False,
    track: Trackers = None,
    as_json: AsJson = False,
) -> None:
    """Print the scores and costs of a run, write its page, or pass it to trackers."""
    from dance_flwr.config.paths import PAGE
    from dance_flwr.pages.run_page import EVERY_SECONDS, report_run
    from dance_flwr.runs.result import read_result, short_result

    run, *others = (each.expanduser().resolve() for each in runs)
    if as_json:
        if others or out or html or live or track:
            raise UserError(
                "report: expected one run and no other option with --json, found others"
            )
        print_json(short_result(read_result(run)))
    elif html or (track and not out and not others):
        report_run(
            run,
            others,
            page=(out or run / PAGE) if html else None,
            trackers=track or [],
            every=EVERY_SECONDS if live else None,
            log=typer.echo,
        )
    elif out or others or live:
        raise UserError(
            "report: expected --html for a page, or --track of one run, found none; add one of "
            "them, or run `dance-flwr tables` for tables of several runs or of a study"
        )
    else:
        _print_scores(run)


def _print_scores(run: Path) -> None:
    from dance_flwr.cli.results import accuracy_table, details
    from dance_flwr.runs.result import read_result
    from dance_flwr.terminal import console

    result = read_result(run)
    console().print(accuracy_table(result))
    for line in details(run, result):
        print(line)
