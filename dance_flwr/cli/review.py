"""`dance-flwr review`: the verdicts of several reviewers."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def review(
    merge: Annotated[
        list[Path], typer.Option("--merge", metavar="FILE", help="verdicts that a page exported")
    ],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="those of other reviewers")
    ] = None,
) -> None:
    """Say how far reviewers of an audit page agree, and which nodes they have to discuss."""
    from dance_flwr.evidence.review import merge as merge_files

    merge_files([*merge, *(more or [])], typer.echo)
