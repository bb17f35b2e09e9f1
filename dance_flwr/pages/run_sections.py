"""The parts of a run's page: sentences, tables, and one chart of the accuracy by round."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from dance_flwr.api.evaluation import Worth, compare_runs
from dance_flwr.config.paths import MANIFEST
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.partition.manifest import read_manifest
from dance_flwr.deploy.invitation import AGREED, Invitation
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.render import READINGS
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.methods import get_spec
from dance_flwr.metrics import wilson_interval
from dance_flwr.runs import privacy_report
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import Run
from dance_flwr.terminal import size


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row is its heading.

    Attributes
    ----------
    numbers : whether the other cells are numbers
    folded : whether a reader opens the table to see it
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    folded: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()


class Chart(NamedTuple):
    """Accuracies by round; each line is an SVG path of x = round and y = 100 - percent.

    Attributes
    ----------
    first, last : rounds at the ends of the axis
    low, high : percent at the ends of the axis, multiples of 10
    lines : name -> path
    text : the accuracies of the last round, for screen readers
    """

    first: int
    last: int
    low: int
    high: int
    lines: Mapping[str, str]
    text: str


def measured(share: float | None, nodes: int) -> str:
    """Return an accuracy over test nodes with its 95 % interval; a dash without nodes.

    An accuracy over fewer than a hundred nodes has no decimals. If plus and minus would leave 0 to
    100 %, the interval is written out.

    Examples
    --------
    >>> measured(309 / 351, 351), measured(1.0, 13), measured(None, 0)
    ('88.0 % ± 3.4', '100 % [77, 100]', '-')
    """
    if share is None or not nodes:
        return "-"
    low, high = wilson_interval(round(share * nodes), nodes)
    half, digits = (high - low) / 2, digits_of(nodes)
    near = f"± {100 * half:.{digits}f}"
    if not half <= share <= 1 - half:
        near = f"[{100 * low:.{digits}f}, {100 * high:.{digits}f}]"
    return f"{percent(share, digits)} {near}"


def digits_of(nodes: int) -> int:
    """Return the number of decimals, in percent, that an accuracy over so many nodes can have."""
    return 1 if nodes >= 100 else 0


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; "" for None."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _rounded(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def client_names(facts: Run) -> dict[int, str]:
    """Return the name of each client's site and its number.

    Sites are those of the federation whose server wrote the run, or of a partition by sites.
    """
    sites: Sequence[str] = ()
    federation = Path(facts.status.folder).resolve().parent.parent / AGREED
    with suppress(UserError):  # another file of that name, or a manifest that is gone
        if federation.is_file():
            sites = Invitation.read(federation).sites
        elif facts.partition:
            rows = read_manifest(Path(facts.partition) / MANIFEST)["clients"]
            sites = [row.get("site", "") for row in rows]
    # With the number, which commands take.
    named = {k: f"{site} (client {k})" for k, site in enumerate(sites) if site}
    return {k: named.get(k, f"client {k}") for k in facts.clients}


def _readings(rows: Sequence[Round]) -> list[str]:
    return ["deployed", *sorted({view for row in rows for view in row.views} - {"deployed"})]


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return the methods of compared runs, or their folders if two have the same method."""
    methods = [run.status.method for run in runs]
    if len(set(methods)) < len(methods):
        return [Path(run.status.folder).name for run in runs]
    return ["each client alone, local-only" if name == "local-only" else name for name in methods]


def comparison(facts: Run, others: Sequence[Run]) -> Table:
    """Return the test accuracy of a finished run beside other runs and a constant guess."""
    name, *names = run_names([facts, *others])
    rows = [(f"{name}, this run", _test_accuracy(facts), "")]
    rows += [
        (name, _test_accuracy(other), _verdict(facts, other))
        for name, other in zip(names, others, strict=True)
    ]
    # A guess that needs no text and no edge.
    nodes = facts.result["test_by_class"]["nodes"]
    if total := sum(nodes):
        largest = facts.result["class_names"][nodes.index(max(nodes))]
        guess = percent(max(nodes) / total, digits_of(total))
        rows.append((f"every node called {largest}, the largest class", guess, ""))
    caption = "Half a 95 % interval after each ±; differences are paired by test node"
    return Table(caption, ("", "test accuracy", "compared"), rows, numbers=False, folded=False)


def _test_accuracy(run: Run) -> str:
    return measured(run.status.test_accuracy, run.result.get("test_nodes", 0))


def _verdict(facts: Run, other: Run) -> str:
    if not other.result:
        return "known when both runs have ended"
    try:
        return compare_runs(Path(facts.status.folder), Path(other.status.folder)).verdict
    except UserError as error:
        return str(error)


def accuracy_chart(runs: Sequence[Run]) -> Chart | None:
    """Return the validation accuracy of several runs by round, or of one run by reading."""
    if len(runs) > 1:
        every = {
            name: [(row.round, row.val_accuracy) for row in run.rows]
            for name, run in zip(run_names(runs), runs, strict=True)
        }
    else:
        rows = runs[0].rows
        every = {
            READINGS.get(name, name): [(row.round, row.views.get(name)) for row in rows]
            for name in _readings(rows)
        }
    lines = {
        name: [(x, 100 * y) for x, y in points if y is not None and isfinite(y)]
        for name, points in every.items()
    }
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return None
    rounds, values = zip(*(point for points in lines.values() for point in points), strict=True)
    low = 10 * floor(min(values) / 10)
    return Chart(
        min(rounds),
        max(rounds),
        low,
        max(10 * ceil(max(values) / 10), low + 10),
        # "h0", so that a single point is a dot.
        {
            name: "M" + "L".join(f"{x} {100 - y:.2f}" for x, y in points) + "h0"
            for name, points in lines.items()
        },
        "; ".join(f"{name} {points[-1][1]:.1f} %" for name, points in lines.items()),
    )


def sections(
    facts: Run,
    worth: Sequence[Worth],
    others: Sequence[Run] = (),
) -> list[Section]:
    """Return the sections below the first screen that a run has so far.

    Parameters
    ----------
    worth : what joining was worth to each client, if the clients have also trained alone
    others : compared runs; one of `local-only` gives the accuracy of clients that train alone
    """
    names, parts = client_names(facts), []
    if facts.result:
        parts += [_by_client(facts, names, worth, others), _by_class(facts.result)]
    parts += [_by_round(facts.rows)] if facts.rows else []
    parts += [_cost(facts, names)] if names else []
    return [*parts, _record(facts)]


def _by_client(
    facts: Run, names: Mapping[int, str], worth: Sequence[Worth], others: Sequence[Run]
) -> Section:
    title, clients = "Accuracy by client", facts.result.get("clients", ())
    if not clients:
        why = "Accuracy by client is not known: under secure aggregation the server reads sums."
        return Section("clients", title, [why])
    alone: dict[int, float | None] = {row.client: row.accuracy["alone"] for row in worth}
    for other in others:
        # A client of the same number has other nodes in a run on other data.
        is_same = other.result.get(DATA_SHA256) == facts.result.get(DATA_SHA256)
        if other.status.method == "local-only" and is_same:
            alone |= {row["client"]: row["test_accuracy"] for row in other.result["clients"]}
    rows: list[Sequence[str]] = []
    for row in clients:
        nodes, number = row["test_nodes"], row["client"]
        shown = [measured(row["test_accuracy"], nodes)]
        shown += [measured(alone.get(number), nodes)] if alone else []
        counts = (f"{row[of]:,}" if of in row else "" for of in ("nodes", "test_nodes"))
        validated = percent(row["val_accuracy"], digits_of(row["val_nodes"])) or "-"
        rows.append((names[number], *counts, validated, *shown))
    headings = ["client", "nodes", "test nodes", "validation accuracy", "test accuracy"]
    headings += ["test accuracy alone"] if alone else []
    caption = "Accuracy of the final model by client; a dash where a client has no such nodes"
    tables = [Table(caption, headings, rows, folded=False)]
    if worth:
        joining = [(names[row.client], row.sentence) for row in worth]
        caption = "What joining was worth to each client"
        tables.append(Table(caption, ("client", "worth"), joining, numbers=False))
    text = f"Not measured: {facts.status.not_tested}."
    if tested := [row for row in clients if row["test_nodes"]]:
        # A mean hides the client for which a model fails.
        worst = min(tested, key=lambda row: row["test_accuracy"])
        lowest = measured(worst["test_accuracy"], worst["test_nodes"])
        text = f"The lowest test accuracy is {lowest}, of {names[worst['client']]}."
    return Section("clients", title, [text], tables)


def _by_class(result: Mapping[str, Any]) -> Section:
    title, counts = "Accuracy by class", result["test_by_class"]
    columns = (counts[name] for name in ("nodes", "predicted", "correct"))
    rows = [
        (
            *(name, f"{nodes:,}", f"{predicted:,}", f"{correct:,}"),
            *(measured(correct / of if of else None, of) for of in (nodes, predicted)),
        )
        for name, nodes, predicted, correct in zip(result["class_names"], *columns, strict=True)
    ]
    headings = ("class", "test nodes", "predicted", "correct", "accuracy", "precision")
    text = (
        "Accuracy: of the test nodes of a class, those predicted as it. Precision: of the nodes "
        "predicted as a class, those that are."
    )
    return Section(
        "classes", title, [text], [Table("Test nodes by class", headings, rows, folded=False)]
    )


def _by_round(rows: Sequence[Round]) -> Section:
    validated = [row for row in rows if row.val_accuracy is not None]
    text = "No round was validated."
    if validated:
        best, last = max(validated, key=lambda row: row.val_accuracy or 0.0), validated[-1]
        text = f"Validation accuracy is best in round {best.round}, {percent(best.val_accuracy)}"
        text += ", the last." if best is last else f"; {percent(last.val_accuracy)} in the last."
    names = _readings(rows)
    is_private = any(row.epsilon is not None for row in rows)
    table = Table(
        "Numbers of each round; empty where a round was not validated",
        (
            *("round", *(f"accuracy, {READINGS.get(name, name)}" for name in names), "macro-F1"),
            *("loss", "seconds", "in training", *(["epsilon"] if is_private else [])),
        ),
        [
            (
                *(str(row.round), *(percent(row.views.get(name)) for name in names)),
                *(percent(row.val_macro_f1), _rounded(row.loss, 6)),
                *(_rounded(row.round_seconds), _rounded(row.train_seconds)),
                *([_rounded(row.epsilon, 6)] if is_private else []),
            )
            for row in rows
        ],
    )
    return Section("rounds", "By round", [text], [table])


def _cost(facts: Run, names: Mapping[int, str]) -> Section:
    def total(way: str, client: int) -> int:
        return sum(getattr(row, way).get(client, 0) for row in facts.rows)

    pairs = {k: (total("bytes_down", k), total("bytes_up", k)) for k in names}
    down, up = (sum(pair[way] for pair in pairs.values()) for way in (0, 1))
    text = f"{size(down)} of models went to the clients, {size(up)} came back."
    rows = [
        (names[k], *(f"{n:,}" for n in pair), str(sum(k in r.absent for r in facts.rows)))
        for k, pair in pairs.items()
    ]
    moved = Table(
        "Bytes of models by client, over all rounds",
        ("client", "to the client", "to the server", "rounds missed"),
        [*rows, ("all", f"{down:,}", f"{up:,}", "")],
    )
    return Section("cost", "Cost", [text], [moved])


def left_clients(facts: Run) -> list[str]:
    """Return what a run promised and what left its clients, a sentence each."""
    lines = privacy_report.promises({"privacy": facts.privacy})
    with suppress(UserError):  # the method of a package that is not installed here
        card = get_spec(facts.status.method).card
        lines.append(f"What a client of {facts.status.method} sends: {card.leaves_client}.")
    return [*lines, "`dance-flwr report RUN --privacy` has each message, and who could read it."]


def _record(facts: Run) -> Section:
    result = facts.result
    defaults = flatten(RunConfig())
    keys = [(k, str(v), str(defaults.get(k, ""))) for k, v in facts.config.items()]
    changed = [row for row in keys if row[1] != row[2]]
    differ = f"{counted(len(changed), 'key')} that {'differs' if len(changed) == 1 else 'differ'}"
    caption = f"Configuration: {differ} from the default"
    config = Table(caption, ("key", "value", "default"), changed, numbers=False)
    versions = {
        "run": facts.status.run,
        "provenance of the code": facts.provenance,
        "model": str(result.get("model_fingerprint", "")),
        **result.get("versions", {}),
        "devices": ", ".join(sorted(set(result.get("devices", ())))),
    }
    rows = [(name, str(value)) for name, value in versions.items() if value]
    caption = "Fingerprints, versions and devices"
    fingerprints = Table(caption, ("what", "value"), rows, numbers=False)
    return Section("record", "Record of the run", tables=[config, fingerprints])
