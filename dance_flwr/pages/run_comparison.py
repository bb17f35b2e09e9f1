"""The answer of a run's page: its test accuracy beside other runs, training alone, and a guess."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from dance_flwr.api.prediction.worth import Worth, paired_difference
from dance_flwr.errors import UserError
from dance_flwr.evidence.render import READINGS
from dance_flwr.pages.charts import Amount, Chart, Line, bar, line_chart
from dance_flwr.pages.run_parts import (
    NO_NODES,
    Section,
    Table,
    digits_of,
    measured,
    one,
    percent,
    readings,
)
from dance_flwr.runs.run import Run

_ALONE = "each client alone"


def comparison(facts: Run, others: Sequence[Run], alone: Sequence[Worth] = ()) -> Section:
    """Return the curves of several runs in one chart, test accuracies, and a verdict on each pair.

    Parameters
    ----------
    alone : what joining was worth to each client, of a run whose clients have also trained alone
    """
    every, table = [facts, *others], Table("Test accuracy", (), ())
    names, sentences = _names(every), []
    if facts.result:
        rows = [_row(f"{names[0]}, this run", _measured(facts))]
        rows += [
            _row(name, _measured(other), _verdict(facts, other))
            for name, other in zip(names[1:], others, strict=True)
        ]
        table = Table(
            "Half a 95 % interval after each ±; differences are paired by test node",
            ("", "0 to 100 %", "test accuracy"),
            [*rows, *_alone(facts, alone), *_largest(facts)],
            numbers=False,
        )
        if not alone and all(run.status.method != "local-only" for run in every):
            sentences.append("`dance-flwr run --compare local-only` adds clients that train alone.")
    return Section("answer", "Test accuracy", sentences, [(_curves(names, every), table)])


def _names(runs: Sequence[Run]) -> list[str]:
    methods = [run.status.method for run in runs]
    # A method of which there are several is told by the folder of each run.
    if len(set(methods)) < len(methods):
        return [Path(run.status.folder).name for run in runs]
    return [f"{_ALONE}, local-only" if name == "local-only" else name for name in methods]


def _curves(names: Sequence[str], runs: Sequence[Run]) -> Markup:
    """Return the validation accuracy of several runs by round, or of one run by reading."""
    if len(runs) > 1:
        lines = [
            Line(name, [(row.round, percent(row.val_accuracy)) for row in run.rows])
            for name, run in zip(names, runs, strict=True)
        ]
    else:
        rows = runs[0].rows
        lines = [
            Line(READINGS.get(name, name), [(r.round, percent(r.views.get(name))) for r in rows])
            for name in readings(rows)
        ]
    text = "; ".join(f"{line.name} {line.known[-1][1]:.1f} %" for line in lines if line.known)
    chart = Chart("curves", "Validation accuracy by round", f"In the last round: {text}.")
    return line_chart(chart, lines, "accuracy on validation nodes (%)")


def _measured(run: Run) -> Amount | None:
    return measured(run.status.test_accuracy, run.result.get("test_nodes", 0))


def _row(name: str, amount: Amount | None, verdict: str = "") -> tuple[str, str, str]:
    head = Markup("{} <small>{}</small>").format(name, verdict) if verdict else name
    return (head, bar(amount), amount.text) if amount else (head, "", NO_NODES)


def _verdict(facts: Run, other: Run) -> str:
    from dance_flwr.api.prediction.comparison import compare_runs  # opens clients

    if not other.result:
        return "known when both runs have ended"
    try:
        return compare_runs(Path(facts.status.folder), Path(other.status.folder)).verdict
    except UserError as error:
        return str(error)


def _alone(facts: Run, rows: Sequence[Worth]) -> Iterator[tuple[str, str, str]]:
    from dance_flwr.api.prediction.comparison import Comparison

    if not (nodes := sum(row.nodes for row in rows)):
        return
    accuracy, alone = (
        sum(row.nodes * (row.accuracy[name] or 0.0) for row in rows) / nodes
        for name in ("deployed", "alone")
    )
    _, half = paired_difference(sum(r.gained for r in rows), sum(r.lost for r in rows), nodes)
    pair = Comparison(facts.status.method, _ALONE, accuracy, alone, nodes, half)
    yield _row(_ALONE, measured(alone, nodes), pair.verdict)


def _largest(facts: Run) -> Iterator[tuple[str, str, str]]:
    """Yield what no model should stay below: it needs no text and no edge."""
    nodes = facts.result.get("test_by_class", {}).get("nodes", ())
    if sum(nodes):
        share, name = max(nodes) / sum(nodes), facts.result["class_names"][nodes.index(max(nodes))]
        yield _row(
            f"every node called {name}, the largest class",
            Amount(share, one(share, digits_of(sum(nodes)))),
        )
