"""The parts of a run's page: headings, sentences, charts, and a table for every chart."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dance_flwr.api.prediction.worth import Worth
from dance_flwr.errors import counted
from dance_flwr.evidence.render import READINGS
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.pages.charts import Chart, Line, bar_grid, line_chart, matrix
from dance_flwr.pages.run_parts import (
    MAX_BARS,
    NO_CHART,
    NO_NODES,
    Section,
    Table,
    client_names,
    digits_of,
    measured,
    numbered,
    one,
    ratio,
    readings,
    six,
    text_of,
    three,
)
from dance_flwr.pages.run_record import of_record
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import Run

if TYPE_CHECKING:  # opening clients is for runs that have ended
    from dance_flwr.api.prediction.confusion import Confusion

_MAX_CLASSES = 60  # of a matrix; its table has all


def sections(
    facts: Run,
    confusion: "Confusion | str",
    worth: Sequence[Worth],
    others: Sequence[Run] = (),
) -> list[Section]:
    """Return the parts of the page below its first screen, as far as the run went.

    Parameters
    ----------
    confusion : counts of test nodes, or why they are not known
    worth : what joining was worth to each client, of a run whose clients have also trained alone
    others : compared runs, of which one may be of clients that train alone
    """
    names, parts = client_names(facts), []
    if facts.result:
        parts += [
            _clients(facts, names, worth, others),
            _classes(facts.result),
            _confusion(facts.result, confusion),
        ]
    parts += [_by_round(facts.rows)] if facts.rows else []
    return [*parts, *of_record(facts, names)]


def _clients(
    facts: Run, names: Mapping[int, str], worth: Sequence[Worth], others: Sequence[Run]
) -> Section:
    title, rows = "Accuracy by client", facts.result.get("clients", ())
    if not rows:
        why = "Accuracy by client is not known: under secure aggregation the server reads sums."
        return Section("clients", title, [why])
    alone = _alone(facts, worth, others)
    columns = ["this run", "alone"] if alone else [""]
    shares = [(row["test_accuracy"], alone.get(row["client"]))[: len(columns)] for row in rows]
    amounts = [
        [measured(share, row["test_nodes"]) for share in pair]
        for row, pair in zip(rows, shares, strict=True)
    ]
    table = Table(
        "Accuracy of the final model by client; a dash where a client has no such nodes",
        (
            *("client", "nodes", "test nodes", "validation accuracy", "test accuracy"),
            *(["test accuracy alone"] if alone else []),
        ),
        [
            (
                numbered(row["client"], names),
                *(f"{row[of]:,}" if of in row else "" for of in ("nodes", "test_nodes")),
                one(row["val_accuracy"], digits_of(row["val_nodes"])) or NO_NODES,
                *map(text_of, shown),
            )
            for row, shown in zip(rows, amounts, strict=True)
        ],
    )
    text = _lowest(rows, names) or f"Not measured: {facts.status.not_tested}."
    drawn = bar_grid(
        Chart("by-client", title, text),
        [f"{names[row['client']]} ({row['test_nodes']:,})" for row in rows[:MAX_BARS]],
        columns,
        amounts[:MAX_BARS],
        # Up to 1 in every run, so that two pages can be compared.
        1.0,
    )
    parts = [(drawn, table)]
    if worth:
        joining = [(numbered(row.client, names), row.sentence) for row in worth]
        caption = "What joining was worth to each client"
        parts.append((NO_CHART, Table(caption, ("client", "worth"), joining, numbers=False)))
    return Section("clients", title, [text], parts)


def _alone(facts: Run, worth: Sequence[Worth], others: Sequence[Run]) -> dict[int, float | None]:
    """Return what each client reaches alone, by number; empty where no run has measured it."""
    alone: dict[int, float | None] = {row.client: row.accuracy["alone"] for row in worth}
    for other in others:
        # A client of the same number has other nodes in a run on other data.
        is_same = other.result.get(DATA_SHA256) == facts.result.get(DATA_SHA256)
        if other.status.method == "local-only" and is_same:
            alone |= {row["client"]: row["test_accuracy"] for row in other.result["clients"]}
    return alone


def _lowest(clients: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> str:
    """Return which client has the lowest test accuracy; one without test nodes has none."""
    tested = [row for row in clients if row["test_nodes"]]
    if not tested:
        return ""
    # A mean hides the client that a model fails.
    worst = min(tested, key=lambda row: row["test_accuracy"])
    lowest = text_of(measured(worst["test_accuracy"], worst["test_nodes"]))
    return (
        f"The lowest test accuracy is {lowest}, of {names[worst['client']]}. "
        "In brackets: test nodes; lines are 95 % intervals."
    )


def _classes(result: Mapping[str, Any]) -> Section:
    title, counts = "Accuracy by class", result.get("test_by_class")
    if counts is None:
        return Section(
            "classes", title, ["Accuracy by class is not in the record of this earlier version."]
        )
    columns = (counts[name] for name in ("nodes", "predicted", "correct"))
    every = list(zip(result["class_names"], *columns, strict=True))
    amounts = [(measured(ratio(hit, n), n), measured(ratio(hit, p), p)) for _, n, p, hit in every]
    text = (
        "Accuracy: of the test nodes of a class, in brackets, those predicted as it. Precision: of "
        "the nodes predicted as a class, those that are."
    )
    table = Table(
        "Test nodes by class",
        ("class", "test nodes", "predicted", "correct", "accuracy", "precision"),
        [
            (name, f"{n:,}", f"{p:,}", f"{hit:,}", *map(text_of, shown))
            for (name, n, p, hit), shown in zip(every, amounts, strict=True)
        ],
    )
    bars = bar_grid(
        Chart("by-class", title, text),
        [f"{name} ({n:,})" for name, n, *_ in every[:MAX_BARS]],
        ("accuracy", "precision"),
        amounts[:MAX_BARS],
        1.0,
    )
    return Section("classes", title, [text], [(bars, table)])


def _confusion(result: Mapping[str, Any], confusion: "Confusion | str") -> Section:
    title = "Confusion matrix"
    if isinstance(confusion, str):
        return Section("confusion", title, [f"{title}: {confusion}"])
    names, counts = confusion.class_names, confusion.counts
    total = sum(map(sum, counts))
    right = sum(row[place] for place, row in enumerate(counts))
    text = (
        f"{right:,} of {counted(total, 'test node')} on the diagonal, predicted again here from "
        "the saved model and the clients' folders; clients send no such counts."
    )
    table = Table(
        "Test nodes: a row per class, a column per prediction",
        ("class", *names),
        [(name, *(f"{n:,}" for n in row)) for name, row in zip(names, counts, strict=True)],
    )
    remarks = [text, confusion.remark] if confusion.remark else [text]
    few = len(names) <= _MAX_CLASSES
    # More cells cannot be read; the table has all of them.
    drawn = matrix(Chart("matrix", title, text), names, counts) if few else NO_CHART
    return Section("confusion", title, remarks, [(drawn, table)])


def _by_round(rows: Sequence[Round]) -> Section:
    known = [row for row in rows if row.val_accuracy is not None]
    text = "No round was validated."
    if known:
        best, last = max(known, key=lambda row: row.val_accuracy or 0.0), known[-1]
        text = f"Validation accuracy is best in round {best.round}, {one(best.val_accuracy)}"
        text += f"; {one(last.val_accuracy)} in the last." if best is not last else ", the last."
    span = f"From {rows[0].loss!s:.6} to {rows[-1].loss!s:.6}."
    loss = Chart("loss", "Training loss by round, a weighted mean over clients", span)
    pace = Chart("pace", "Wall clock by round", "Training alone, and the whole round.")
    times = [
        Line("whole round", [(row.round, row.round_seconds) for row in rows]),
        Line("training", [(row.round, row.train_seconds) for row in rows]),
    ]
    names = readings(rows)
    is_private = any(row.epsilon is not None for row in rows)
    table = Table(
        "Numbers of each round; empty where a round was not validated",
        (
            *("round", *(f"accuracy, {READINGS.get(name, name)}" for name in names), "macro-F1"),
            *("loss", "seconds", "in training", *(["epsilon"] if is_private else [])),
        ),
        [
            (
                *(str(row.round), *(one(row.views.get(name)) for name in names)),
                *(one(row.val_macro_f1), six(row.loss)),
                *(three(row.round_seconds), three(row.train_seconds)),
                *([six(row.epsilon)] if is_private else []),
            )
            for row in rows
        ],
    )
    losses = Line("training loss", [(row.round, row.loss) for row in rows])
    charts = [(line_chart(loss, [losses], "training loss"), None)]
    charts += [(line_chart(pace, times, "seconds", 0.0), None)]
    return Section("rounds", "By round", [text], [*charts, (NO_CHART, table)])
