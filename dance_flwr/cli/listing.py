"""`dance-flwr list`: methods, partitioners, strategies and runs, a line each."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dance_flwr.cli.options import AsJson, print_json
from dance_flwr.errors import UserError, counted, unknown

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
    as_json: AsJson = False,
) -> None:
    """List methods, partitioners, strategies, or the runs in ./runs, newest first."""
    if kind not in _KINDS:
        raise UserError(unknown("list", [kind], _KINDS))
    rows = _runs() if kind == "runs" else _plugins(kind)
    if as_json:
        print_json(rows)
        return
    width = max(map(len, rows), default=0)
    lines = [f"{name:{width}s}  {_text(facts)}" for name, facts in rows.items()]
    typer.echo("\n".join(lines) or "no runs in ./runs; start one with `dance-flwr run`")


def _plugins(kind: str) -> dict[str, dict[str, Any]]:
    """Return what is known of each plug-in, by name."""
    from dance_flwr.config.plugins import METHODS, PARTITIONERS, STRATEGIES

    if kind == "methods":
        cards = {name: spec.card for name, spec in METHODS.all().items()}
        return {
            n: {"trains_on": card.trains_on, "source": card.source} for n, card in cards.items()
        }
    registry = PARTITIONERS if kind == "partitioners" else STRATEGIES
    firsts = {n: (f.__doc__ or "").strip().partition("\n")[0] for n, f in registry.all().items()}
    clients = "each node's client, [n] int64: "
    return {
        name: {"what": first.removeprefix("Return ").removeprefix(clients)}
        for name, first in firsts.items()
    }


def _runs() -> dict[str, dict[str, Any]]:
    """Return method, rounds, state and score of each run, the newest first."""
    from dance_flwr.runs.run import is_run, read_status

    folders = [path for path in Path("runs").glob("*") if is_run(path)]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    names = ("method", "round", "state", "test_accuracy")
    rows = {str(folder): read_status(folder) for folder in folders}
    return {folder: {name: getattr(row, name) for name in names} for folder, row in rows.items()}


def _text(facts: dict[str, Any]) -> str:
    """Return the facts of a run or a plug-in in words."""
    if "what" in facts:
        return str(facts["what"])
    if "source" in facts:
        return f"trains on {facts['trains_on']}; {facts['source']}"
    score = facts["test_accuracy"]
    words = f"{facts['method']}, {counted(facts['round'], 'round')}, {facts['state']}"
    return words if score is None else f"{words}, {score:.1%} of test nodes"
