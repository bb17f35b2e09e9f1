"""The parts of a run's page: headings, sentences, charts, and a table for every chart."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dance_flwr.evidence.render import READINGS
from dance_flwr.pages.charts import Chart, Line, Scale, bar_grid, line_chart, matrix
from dance_flwr.pages.run_parts import (
    LATER,
    NO_CHART,
    NO_NODES,
    Section,
    Table,
    four,
    percent,
    ratio,
    six,
    sum_of,
    three,
)
from dance_flwr.pages.run_record import of_record
from dance_flwr.runs.facts import RunFacts
from dance_flwr.runs.history import Round
from dance_flwr.runs.units import size

if TYPE_CHECKING:  # opening clients is for runs that have ended
    from dance_flwr.api.prediction.confusion import Confusion

_MAX_BARS, _MAX_CLASSES = 60, 60  # rows of a chart; tables have all


def sections(facts: RunFacts, confusion: "Confusion | str", worth: Sequence[str]) -> list[Section]:
    """Return the parts of the page of a run, as far as it went.

    Parameters
    ----------
    confusion : counts of test nodes, or why they are not known
    worth : a sentence per client, or why they are not known; empty = no such part
    """
    return [
        _clients(facts),
        *([Section("worth", "What joining was worth", worth)] if worth else []),
        _classes(facts.result),
        _by_round(facts.rows, facts.result),
        _confusion(facts.result, confusion),
        _bytes(facts),
        _seconds(facts),
        *of_record(facts),
    ]


def _by_round(rows: Sequence[Round], result: Mapping[str, Any]) -> Section:
    if not rows:
        return Section("rounds", "Accuracy, loss and seconds by round", ["No round has ended yet."])
    views = sorted({view for row in rows for view in row.views} - {"deployed"})
    # What is deployed comes first; the other views explain it.
    names = ["deployed", *views]
    titles = [READINGS.get(name, name) for name in names]
    lines = [
        Line(title, [(r.round, percent(r.views.get(name))) for r in rows])
        for name, title in zip(names, titles, strict=True)
    ]
    known = [row for row in rows if row.val_accuracy is not None]
    text = "No round was validated."
    if known:
        best = max(known, key=lambda row: row.val_accuracy or 0.0)
        text = (
            f"The answer reached {best.val_accuracy:.4f} in round {best.round} and "
            f"{known[-1].val_accuracy:.4f} in round {known[-1].round}, the last one."
        )
    nodes = result.get("test_by_class", {}).get("nodes", ())
    if sum(nodes):
        largest = max(nodes) / sum(nodes)
        # What no model should stay below: it needs no text and no edge.
        lines.append(Line("largest class alone", [(r.round, percent(largest)) for r in rows]))
        text += f" Saying the largest class everywhere reaches {largest:.4f} on test nodes."
    chart = Chart("accuracy", "Validation accuracy by round", text)
    scores = Table(
        "Validation by round; empty where a round was not validated",
        ("round", *(f"accuracy, {title}" for title in titles), "macro-F1"),
        [
            (str(row.round), *(four(row.views.get(name)) for name in names), four(row.val_macro_f1))
            for row in rows
        ],
    )
    losses = Chart(
        "loss", "Training loss by round", f"From {rows[0].loss!s:.6} to {rows[-1].loss!s:.6}."
    )
    costs = Table(
        "Training loss by round, a weighted mean over clients",
        ("round", "loss"),
        [(str(row.round), six(row.loss)) for row in rows],
    )
    drawn = line_chart(losses, [Line("training loss", [(r.round, r.loss) for r in rows])], "loss")
    parts = [
        (line_chart(chart, lines, "accuracy on validation nodes (%)"), scores),
        (drawn, costs),
        _pace(rows),
    ]
    return Section("rounds", "Accuracy, loss and seconds by round", [text], parts)


def _pace(rows: Sequence[Round]) -> tuple[Markup, Table]:
    chart = Chart("pace", "Wall clock by round", "Training alone, and the whole round.")
    times = [
        Line("whole round", [(row.round, row.round_seconds) for row in rows]),
        Line("training", [(row.round, row.train_seconds) for row in rows]),
    ]
    pace = Table(
        "Seconds of wall clock by round",
        ("round", "training", "whole round"),
        [(str(r.round), three(r.train_seconds), three(r.round_seconds)) for r in rows],
    )
    return line_chart(chart, times, "seconds", 0.0), pace


def _seconds(facts: RunFacts) -> Section:
    rows, by_client = facts.rows, facts.client_seconds
    phases = list(dict.fromkeys(phase for row in rows for phase in row.seconds))
    total = {p: sum(row.seconds.get(p) or 0.0 for row in rows) for p in phases}
    by = {f"client {client}": by_client[client] for client in sorted(by_client)}
    # Else a method would have a column for every phase of the others.
    phases = [phase for phase in phases if total[phase]]
    text = "Seconds that clients spent in each phase of training, over all rounds."
    if not by_client:
        text += " Only sums over clients are known: secure aggregation hides the rest."
    table = Table(
        "Seconds by phase and client; phases of the server have no client",
        ("", *phases, "all"),
        [
            *(
                (name, *(three(s.get(p)) for p in phases), three(sum_of(s)))
                for name, s in by.items()
            ),
            ("all", *(three(total[p]) for p in phases), three(sum_of(total))),
        ],
    )
    # Under masks only sums are known.
    by_name = by or {"all": total}
    names = list(by_name)[:_MAX_BARS]
    values = [[by_name[name].get(phase) for phase in phases] for name in names]
    bars = bar_grid(
        Chart("seconds", "Seconds by phase and client", text), names, phases, values, Scale(three)
    )
    return Section(
        "seconds", "Seconds by phase and client", [text], [(bars, table)] if rows else []
    )


def _bytes(facts: RunFacts) -> Section:
    def total(way: str, client: int) -> int:
        return sum(getattr(row, way).get(client, 0) for row in facts.rows)

    pairs = {k: (total("bytes_down", k), total("bytes_up", k)) for k in facts.clients}
    down, up = (sum(pair[way] for pair in pairs.values()) for way in (0, 1))
    text = f"{size(down)} of models went to the clients, {size(up)} came back."
    table = Table(
        "Bytes of models by client, over all rounds",
        ("client", "to the client", "to the server"),
        [
            *((str(k), f"{a:,}", f"{b:,}") for k, (a, b) in pairs.items()),
            ("all", f"{down:,}", f"{up:,}"),
        ],
    )
    names = [f"client {client}" for client in pairs][:_MAX_BARS]
    bars = bar_grid(
        Chart("bytes", "Bytes of models by client", text),
        names,
        ("to the client", "to the server"),
        list(pairs.values())[:_MAX_BARS],
        Scale(size),
    )
    kinds = Table(
        "Bytes by phase of the conversation; arrays and byte strings of all messages",
        ("message", "way", "messages", "errors", "bytes"),
        [
            (_kind(e), e["way"], f"{e['count']:,}", f"{e['errors']:,}", f"{e['bytes']:,}")
            for e in facts.messages
        ],
    )
    parts = [(bars, table)] if pairs else []
    return Section("bytes", "Bytes by phase and client", [text], [*parts, (NO_CHART, kinds)])


def _clients(facts: RunFacts) -> Section:
    title, result = "Accuracy by client", facts.result
    missed = {k: sum(k in row.absent for row in facts.rows) for k in facts.clients}
    why = [
        f"Client {gone.client} did not take part in the last round: {gone.reason}"
        for gone in facts.status.absent
    ]
    if not result:
        rows = [(str(client), str(count)) for client, count in missed.items()]
        table = Table("Rounds that each client missed", ("client", "rounds missed"), rows)
        return Section("clients", title, [LATER, *why], [(NO_CHART, table)])
    clients = result.get("clients", ())
    if not clients:
        return Section(
            "clients", title, ["Not known: under secure aggregation the server reads sums.", *why]
        )
    nodes = [row.get("nodes") for row in clients]
    scores = [(row["val_accuracy"], row["test_accuracy"]) for row in clients]
    table = Table(
        "Accuracy of the final model by client; a dash where a client has no such nodes",
        ("client", "nodes", "test nodes", "validation accuracy", "test accuracy", "rounds missed"),
        [
            (
                str(row["client"]),
                "" if count is None else f"{count:,}",
                f"{row['test_nodes']:,}",
                *(four(score) or NO_NODES for score in (val, test)),
                str(missed.get(row["client"], 0)),
            )
            for row, count, (val, test) in zip(clients, nodes, scores, strict=True)
        ],
    )
    text = _lowest(clients) or f"Not measured: {facts.status.not_tested}."
    bars = bar_grid(
        Chart("by-client", title, text),
        [f"client {row['client']}" for row in clients[:_MAX_BARS]],
        ("validation", "test"),
        scores[:_MAX_BARS],
        # Up to 1 in every run, so that two pages can be compared.
        Scale(four, 1.0, NO_NODES),
    )
    return Section("clients", title, [text, *why], [(bars, table)])


def _lowest(clients: Sequence[Mapping[str, Any]]) -> str:
    """Return which client has the lowest test accuracy; "" where none was measured."""
    tested = [row for row in clients if row["test_nodes"]]
    if not tested:
        return ""
    # A mean hides the client that a model fails.
    worst = min(tested, key=lambda row: row["test_accuracy"])
    return f"The lowest test accuracy is {worst['test_accuracy']:.4f}, of client {worst['client']}."


def _classes(result: Mapping[str, Any]) -> Section:
    title, counts = "Accuracy by class", result.get("test_by_class")
    if counts is None:
        later = LATER if not result else "Not in this run's record, which is of an earlier version."
        return Section("classes", title, [later])
    every = list(
        zip(
            result["class_names"],
            counts["nodes"],
            counts["predicted"],
            counts["correct"],
            strict=True,
        )
    )
    text = "Accuracy: of the test nodes of a class, those predicted as it. Precision: of the nodes "
    text += "predicted as a class, those that are. Of all clients' test nodes, by the final model."
    table = Table(
        "Test nodes by class",
        ("class", "test nodes", "predicted", "correct", "accuracy", "precision"),
        [
            (name, f"{n:,}", f"{p:,}", f"{hit:,}", four(ratio(hit, n)), four(ratio(hit, p)))
            for name, n, p, hit in every
        ],
    )
    bars = bar_grid(
        Chart("by-class", title, text),
        [name for name, *_ in every[:_MAX_BARS]],
        ("accuracy", "precision"),
        [(ratio(hit, n), ratio(hit, p)) for _, n, p, hit in every[:_MAX_BARS]],
        Scale(four, 1.0),
    )
    return Section("classes", title, [text], [(bars, table)])


def _confusion(result: Mapping[str, Any], confusion: "Confusion | str") -> Section:
    title = "Confusion matrix"
    if isinstance(confusion, str):
        return Section("confusion", title, [confusion if result else LATER])
    names, counts = confusion.class_names, confusion.counts
    total = sum(map(sum, counts))
    right = sum(row[place] for place, row in enumerate(counts))
    text = (
        f"{right:,} of {total:,} test nodes are on the diagonal. Predicted again on this machine "
    )
    text += "from the saved model and the clients' folders; clients send no such counts."
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


def _kind(entry: Mapping[str, Any]) -> str:
    return f"{entry['type']} / {entry['stage']}" if entry["stage"] else str(entry["type"])
