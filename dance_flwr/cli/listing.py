"""`dance-flwr list`: methods, partitioners, strategies and runs, a line each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dance_flwr.errors import UserError, unknown

app = typer.Typer()
_KINDS = ("methods", "partitioners", "strategies", "runs")


@app.command(name="list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(_KINDS), help="what to list", autocompletion=lambda: _KINDS
        ),
    ],
) -> None:
    """List methods, partitioners, strategies, or the runs in ./runs, newest first."""
    if kind not in _KINDS:
        raise UserError(unknown("list", [kind], _KINDS))
    rows = list(_runs() if kind == "runs" else _plugins(kind))
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{name:{width}s}  {text}" for name, text in rows]
    typer.echo("\n".join(lines) or "no runs in ./runs; start one with `dance-flwr run`")


def _plugins(kind: str) -> Iterator[tuple[str, str]]:
    from dance_flwr.config.plugins import METHODS, PARTITIONERS, STRATEGIES

    if kind == "methods":
        for name, spec in METHODS.all().items():
            yield name, f"trains on {spec.card.trains_on}; {spec.card.source}"
        return
    registry = PARTITIONERS if kind == "partitioners" else STRATEGIES
    for name, function in registry.all().items():
        first = (function.__doc__ or "").strip().partition("\n")[0]
        yield name, first.removeprefix("Return ").removeprefix("each node's client, [n] int64: ")


def _runs() -> Iterator[tuple[str, str]]:
    from dance_flwr.runs.facts import is_run
    from dance_flwr.runs.status import read_status

    folders = [path for path in Path("runs").glob("*") if is_run(path)]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        status = read_status(folder)
        test = status.test_accuracy
        score = "" if test is None else f", {test:.1%} of test nodes"
        yield str(folder), f"{status.method}, {status.round} rounds, {status.state}{score}"
