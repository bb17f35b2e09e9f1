"""`dance-flwr status` and `list`: the progress of a run; what there is to run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.options import AsJson, print_json, run_argument
from dance_flwr.errors import UserError, counted, unknown
from dance_flwr.escaping import one_line

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.runs.run import Absent, Status

app = typer.Typer()
# Of the built-in graph.
_PYDOCS = {
    "text": "docstring",
    "licence": "BSD-3-Clause",
    "origin": "numpy, scipy, scikit-learn, networkx",
}
_KINDS = ("methods", "graphs", "runs", "keys")


@app.command(rich_help_panel="Run")
def status(
    run: Annotated[Path, run_argument("folder of a run, finished or not, or `latest`")],
    as_json: AsJson = False,
) -> None:
    """Print how far a run is: accuracy, time left, traffic, absent clients, how to resume."""
    from dance_flwr.runs.run import read_status

    current = read_status(run.expanduser().resolve())
    print_json(asdict(current)) if as_json else typer.echo(render(current))


@app.command(name="list", rich_help_panel="Run")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(_KINDS), help="what to list", autocompletion=lambda: _KINDS
        ),
    ],
    of: Annotated[
        str,
        typer.Argument(
            metavar="[METHOD]",
            help="with keys: the method whose keys are printed, or `all`",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List methods, graphs, the runs in ./runs (newest first), or the keys of a run."""
    if kind not in _KINDS:
        raise UserError(unknown("list", [kind], _KINDS))
    if of and kind != "keys":
        raise UserError(f"list {kind}: expected no other word, found {of!r}; leave it out")
    if kind == "keys":
        typer.echo(_keys(of))
        return
    rows = _methods() if kind == "methods" else _runs() if kind == "runs" else _graphs()
    if as_json:
        print_json(rows)
        return
    width = max(map(len, rows), default=0)
    lines = [f"{name:{width}s}  {_text(facts)}" for name, facts in rows.items()]
    typer.echo("\n".join(lines) or "no runs in ./runs; start one with `dance-flwr run`")


def _keys(method: str) -> str:
    from dance_flwr.config import text
    from dance_flwr.config.plugins import METHODS

    if method in ("", "all"):
        return text.all_tables() if method else text.common_tables()
    METHODS.check([method])
    return text.method_tables([method])


def _methods() -> dict[str, dict[str, Any]]:
    from dance_flwr.config.plugins import METHODS

    cards = {name: spec.card for name, spec in METHODS.all().items()}
    return {n: {"trains_on": card.trains_on, "source": card.source} for n, card in cards.items()}


def _graphs() -> dict[str, dict[str, Any]]:
    """Return counts, split, licence and origin of each graph: built in, published, imported."""
    from dance_flwr.config.paths import data_root
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.config.sections import DataConfig
    from dance_flwr.data.graphs.catalogue import CATALOGUE, imported_graphs
    from dance_flwr.data.imports.importer import read_report

    stored = imported_graphs(data_root(DataConfig()))
    rows: dict[str, dict[str, Any]] = {}
    for name in DATASETS:
        built = _PYDOCS if name == "pydocs" else {"origin": "another package"}
        rows[name] = {"split": "by ratio", **built, "here": True}
    for name, row in CATALOGUE.items():
        split = "/".join(f"{100 * share:g}" for share in row.split)
        split += (" official" if row.official else "") + (" inductive" if row.inductive else "")
        places = dict.fromkeys(f"{file.network} {file.short}" for file in row.files)
        rows[name] = {
            "nodes": row.nodes,
            "edges": row.edges,
            "classes": row.classes,
            "split": split,
            "text": row.text,
            "licence": row.licence,
            "origin": ", ".join(places),
            "here": name in stored,
        }
    for name in sorted(set(stored) - rows.keys()):
        report = read_report(stored[name])
        counts = report.get("counts", {})
        rows[name] = {
            "nodes": counts.get("nodes"),
            "edges": counts.get("directed_edges"),
            "classes": counts.get("classes"),
            "split": "own" if counts.get("train_nodes") else "by ratio",
            "origin": f"import of {report.get('kind', 'files')}",
            "here": True,
        }
    return rows


def _runs() -> dict[str, dict[str, Any]]:
    from dance_flwr.runs.run import is_run, read_status

    folders = [path for path in Path("runs").glob("*") if is_run(path)]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    names = ("method", "round", "state", "test_accuracy")
    rows = {str(folder): read_status(folder) for folder in folders}
    return {folder: {name: getattr(row, name) for name in names} for folder, row in rows.items()}


def _text(facts: dict[str, Any]) -> str:
    if "source" in facts:
        return f"trains on {facts['trains_on']}; {facts['source']}"
    if "here" in facts:
        nouns = {"nodes": ("node",), "edges": ("edge",), "classes": ("class", "classes")}
        known = [counted(facts[n], *words) for n, words in nouns.items() if facts.get(n)]
        split = [f"split {facts['split']}"] if "split" in facts else []
        parts = (", ".join(known + split), facts.get("text"), facts.get("licence"))
        origin = f"{facts['origin']}, {'here' if facts['here'] else 'not here'}"
        return "; ".join(filter(None, (*parts, origin)))
    score = facts["test_accuracy"]
    words = f"{facts['method']}, {counted(facts['round'], 'round')}, {facts['state']}"
    return words if score is None else f"{words}, {score:.1%} of test nodes"


def render(status: "Status") -> str:
    """Return a status as lines of text."""
    from dance_flwr.runs.run import FINISHED, RUNNING
    from dance_flwr.terminal import duration, pace, size

    rounds = "?" if status.rounds is None else str(status.rounds)
    reason = f": {status.reason}" if status.reason else ""
    run = status.run or ("gathers its clients" if status.state == RUNNING else "unnamed")
    rows = [
        ("run", f"{run} in {status.folder}"),
        ("state", f"{status.state}{reason}"),
        ("round", f"{status.round} of {rounds}"),
    ]
    if status.skipped:
        numbers = ", ".join(map(str, status.skipped))
        rows.append(("", f"skipped, as no client that took part had a weight: {numbers}"))
    if status.val_accuracy is not None:
        last = f"{status.val_accuracy:.4f} on validation in round {status.val_round}"
        rows.append(
            ("accuracy", f"{last}, best {status.best_accuracy:.4f} in round {status.best_round}")
        )
    elif status.private and status.private.withheld:
        rows.append(("accuracy", "clients count no validation under differential privacy"))
    elif status.round:
        yet = "" if status.state == FINISHED else " yet"
        rows.append(("accuracy", f"no round was validated{yet}"))
    if status.test_accuracy is not None:
        rows.append(("", f"{status.test_accuracy:.4f} on the test nodes"))
    elif status.not_tested:
        rows.append(("", f"not measured on test nodes: {status.not_tested}"))
    rows += status.private.rows() if status.private else []
    if status.seconds_total is not None:
        left = "" if not status.seconds_left else f", about {duration(status.seconds_left)} left"
        rows.append(("time", pace(status.seconds_total, status.round) + left))
    if status.round:
        rows.append(("bytes", f"{size(status.bytes_down)} down, {size(status.bytes_up)} up"))
        total = len(status.answered) + len(status.absent)
        answered = f"{len(status.answered)} of {total} answered in round {status.round}"
        rows += [("clients", answered), *(("", _missing(absent)) for absent in status.absent)]
    if status.resume:
        rows.append(("resume", status.resume))
    return "\n".join(f"{name:12s}{one_line(text)}" for name, text in rows)


def _missing(absent: "Absent") -> str:
    from dance_flwr.terminal import duration

    last = (
        "never answered"
        if absent.last_answered is None
        else f"last answered in round {absent.last_answered}"
    )
    missed = f"missed {counted(absent.rounds, 'round')} in {duration(absent.seconds)}"
    return f"client {absent.client}: {last}, {missed}: {absent.reason}"
