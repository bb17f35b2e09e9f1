"""The parts of a run's page: sentences, charts of lines by round, and tables, some with bars."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dance_flwr.api.evaluation import (
    Comparison,
    Confusion,
    Worth,
    compare_runs,
    paired_difference,
)
from dance_flwr.config.paths import MANIFEST
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.partition.manifest import read_manifest
from dance_flwr.deploy.invitation import AGREED, Invitation
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.render import READINGS
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.methods import get_spec
from dance_flwr.metrics import wilson_interval
from dance_flwr.nn.calibration import Calibration
from dance_flwr.pages.charts import Points, known, line_chart
from dance_flwr.runs import privacy_report
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import Run
from dance_flwr.runs.token_ledgers import ledger_lines
from dance_flwr.terminal import size

Row = Sequence["str | Cell"]

_ALONE = "each client alone"
_SHADES = 5  # of cells in the confusion matrix, see `static/run.css`


@dataclass(frozen=True)
class Cell:
    """A number in a table, with a bar if its table has bars.

    Attributes
    ----------
    text : the number, as people read it
    value : length of the bar; None = no bar
    interval : confidence interval of the value, drawn over the end of the bar
    kind : class for the style
    """

    text: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row is its heading.

    Attributes
    ----------
    numbers : whether the other cells are numbers
    longest : value of the longest bar; 0 = the table has no bars and is folded
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Row]
    numbers: bool = True
    longest: float = 0.0


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()


def measured(share: float | None, nodes: int) -> Cell:
    """Return an accuracy over test nodes with its 95 % interval; a dash without nodes.

    An accuracy over fewer than a hundred nodes has no decimals. If plus and minus would leave 0 to
    100 %, the interval is written out.

    Examples
    --------
    >>> measured(309 / 351, 351).text, measured(1.0, 13).text, measured(None, 0).text
    ('88.0 % ± 3.4', '100 % [77, 100]', '-')
    """
    if share is None or not nodes:
        return Cell("-")
    low, high = interval = wilson_interval(round(share * nodes), nodes)
    half, digits = (high - low) / 2, digits_of(nodes)
    near = f"± {100 * half:.{digits}f}"
    if not half <= share <= 1 - half:
        near = f"[{100 * low:.{digits}f}, {100 * high:.{digits}f}]"
    return Cell(f"{percent(share, digits)} {near}", share, interval)


def digits_of(nodes: int) -> int:
    """Return the number of decimals, in percent, that an accuracy over so many nodes can have."""
    return 1 if nodes >= 100 else 0


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; "" for None."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _rounded(value: float | None, digits: int = 3) -> str:
    """Return a value with this number of significant digits; "" for None."""
    return "" if value is None else f"{value:.{digits}g}"


def client_names(facts: Run) -> dict[int, str]:
    """Return the name of each client's site, or its number.

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
    named = {k: site for k, site in enumerate(sites) if site}
    return {k: named.get(k, f"client {k}") for k in facts.clients}


def _numbered(client: int, names: Mapping[int, str]) -> str:
    """Return the name of a client and its number, which commands take."""
    name = names.get(client, f"client {client}")
    return name if name == f"client {client}" else f"{name} (client {client})"


def _readings(rows: Sequence[Round]) -> list[str]:
    """Return the names of the readings in these rounds, the deployed one first."""
    return ["deployed", *sorted({view for row in rows for view in row.views} - {"deployed"})]


def comparison(facts: Run, others: Sequence[Run], alone: Sequence[Worth] = ()) -> Section:
    """Return the test accuracy of a run beside other runs, training alone and a constant guess.

    Parameters
    ----------
    alone : what joining was worth to each client, if the clients have also trained alone
    """
    runs = [facts, *others]
    methods = [run.status.method for run in runs]
    names = [f"{_ALONE}, local-only" if name == "local-only" else name for name in methods]
    # If two runs have the same method, the folders tell them apart.
    if len(set(methods)) < len(methods):
        names = [Path(run.status.folder).name for run in runs]
    tables, sentences = [], []
    if facts.result:
        rows: list[tuple[str, Cell]] = [(f"{names[0]}, this run", _test_accuracy(facts))]
        rows += [
            (_with_verdict(name, _verdict(facts, other)), _test_accuracy(other))
            for name, other in zip(names[1:], others, strict=True)
        ]
        caption = "Half a 95 % interval after each ±; differences are paired by test node"
        rows += [*_trained_alone(facts, alone), *_largest_class(facts)]
        tables = [Table(caption, ("", "test accuracy"), rows, longest=1.0)]
        if not alone and "local-only" not in methods:
            sentences = ["`dance-flwr run --compare local-only` adds clients that train alone."]
    return Section("answer", "Test accuracy", sentences, [_curves(names, runs)], tables)


def _curves(names: Sequence[str], runs: Sequence[Run]) -> Markup:
    """Return the validation accuracy of several runs by round, or of one run by reading."""
    lines: dict[str, Points] = {}
    if len(runs) > 1:
        for name, run in zip(names, runs, strict=True):
            lines[name] = [(row.round, row.val_accuracy) for row in run.rows]
    else:
        for name in _readings(runs[0].rows):
            points = [(row.round, row.views.get(name)) for row in runs[0].rows]
            lines[READINGS.get(name, name)] = points
    lines = {name: [(x, 100 * y) for x, y in known(points)] for name, points in lines.items()}
    last = "; ".join(f"{name} {points[-1][1]:.1f} %" for name, points in lines.items() if points)
    title, text = "Validation accuracy by round", f"In the last round: {last}."
    return line_chart("curves", title, text, "accuracy on validation nodes (%)", lines)


def _test_accuracy(run: Run) -> Cell:
    return measured(run.status.test_accuracy, run.result.get("test_nodes", 0))


def _with_verdict(name: str, verdict: str) -> Markup:
    return Markup("{} <small>{}</small>").format(name, verdict)


def _verdict(facts: Run, other: Run) -> str:
    if not other.result:
        return "known when both runs have ended"
    try:
        return compare_runs(Path(facts.status.folder), Path(other.status.folder)).verdict
    except UserError as error:
        return str(error)


def _trained_alone(facts: Run, rows: Sequence[Worth]) -> Iterator[tuple[str, Cell]]:
    if not (nodes := sum(row.nodes for row in rows)):
        return
    accuracy, alone = (
        sum(row.nodes * (row.accuracy[name] or 0.0) for row in rows) / nodes
        for name in ("deployed", "alone")
    )
    _, half = paired_difference(sum(r.gained for r in rows), sum(r.lost for r in rows), nodes)
    pair = Comparison(facts.status.method, _ALONE, accuracy, alone, nodes, half)
    yield _with_verdict(_ALONE, pair.verdict), measured(alone, nodes)


def _largest_class(facts: Run) -> Iterator[tuple[str, Cell]]:
    """Yield the accuracy of a guess that needs no text and no edge."""
    nodes = facts.result.get("test_by_class", {}).get("nodes", ())
    if total := sum(nodes):
        name, share = facts.result["class_names"][nodes.index(max(nodes))], max(nodes) / total
        text = percent(share, digits_of(total))
        yield f"every node called {name}, the largest class", Cell(text, share)


def sections(
    facts: Run,
    confusion: Confusion | str,
    worth: Sequence[Worth],
    others: Sequence[Run] = (),
) -> list[Section]:
    """Return the parts of the page below its first screen, as far as the run went.

    Parameters
    ----------
    confusion : counts of test nodes, or why they are not known
    worth : what joining was worth to each client, if the clients have also trained alone
    others : compared runs; one of `local-only` gives the accuracy of clients that train alone
    """
    names, parts = client_names(facts), []
    if facts.result:
        parts += [
            _by_client(facts, names, worth, others),
            _by_class(facts.result),
            _confusion(confusion),
        ]
    parts += [_by_round(facts.rows)] if facts.rows else []
    parts += [_cost(facts, names)] if names else []
    return [*parts, _privacy(facts), _record(facts, names)]


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
    rows: list[Row] = []
    for row in clients:
        nodes, number = row["test_nodes"], row["client"]
        shown = [measured(row["test_accuracy"], nodes)]
        shown += [measured(alone.get(number), nodes)] if alone else []
        counts = (f"{row[of]:,}" if of in row else "" for of in ("nodes", "test_nodes"))
        validated = percent(row["val_accuracy"], digits_of(row["val_nodes"])) or "-"
        rows.append((_numbered(number, names), *counts, validated, *shown))
    headings = ["client", "nodes", "test nodes", "validation accuracy", "test accuracy"]
    headings += ["test accuracy alone"] if alone else []
    caption = "Accuracy of the final model by client; a dash where a client has no such nodes"
    # Bars are up to 100 % in every run, so that two pages can be compared.
    tables = [Table(caption, headings, rows, longest=1.0)]
    if worth:
        joining = [(_numbered(row.client, names), row.sentence) for row in worth]
        caption = "What joining was worth to each client"
        tables.append(Table(caption, ("client", "worth"), joining, numbers=False))
    text = f"Not measured: {facts.status.not_tested}."
    if tested := [row for row in clients if row["test_nodes"]]:
        # A mean hides the client for which a model fails.
        worst = min(tested, key=lambda row: row["test_accuracy"])
        lowest = measured(worst["test_accuracy"], worst["test_nodes"]).text
        text = f"The lowest test accuracy is {lowest}, of {names[worst['client']]}."
        text += " Lines are 95 % intervals."
    return Section("clients", title, [text], tables=tables)


def _by_class(result: Mapping[str, Any]) -> Section:
    title, counts = "Accuracy by class", result.get("test_by_class")
    if counts is None:
        return Section("classes", title, [f"{title} is not in the record of this earlier version."])
    columns = (counts[name] for name in ("nodes", "predicted", "correct"))
    rows: list[Row] = [
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
    tables = [Table("Test nodes by class", headings, rows, longest=1.0)]
    return Section("classes", title, [text], tables=tables)


def _confusion(confusion: Confusion | str) -> Section:
    title = "Confusion matrix"
    if isinstance(confusion, str):
        return Section("confusion", title, [f"{title}: {confusion}"])
    names, counts = confusion.class_names, confusion.counts
    right = sum(row[place] for place, row in enumerate(counts))
    text = (
        f"{right:,} of {counted(sum(map(sum, counts)), 'test node')} on the diagonal, predicted "
        "again here from the saved model and the clients' folders; clients send no such counts."
    )
    rows: list[Row] = [
        (name, *(_shaded(n, sum(row), number == place) for place, n in enumerate(row)))
        for number, (name, row) in enumerate(zip(names, counts, strict=True))
    ]
    caption = "Test nodes: a row per class, a column per prediction"
    tables = [Table(caption, ("class", *names), rows, longest=1.0)]
    remarks = [text, confusion.remark] if confusion.remark else [text]
    return Section("confusion", title, remarks, tables=tables)


def _shaded(count: int, total: int, right: bool) -> Cell:
    """Return a count, shaded by its share of the row, with a border if the prediction is right."""
    shade = ceil(_SHADES * count / total) if total else 0
    return Cell(f"{count:,}", kind=f"shade-{shade}{' right' if right else ''}")


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
    losses: Points = [(row.round, row.loss) for row in rows]
    times: dict[str, Points] = {
        "whole round": [(row.round, row.round_seconds) for row in rows],
        "training": [(row.round, row.train_seconds) for row in rows],
    }
    title = "Training loss by round, a weighted mean over clients"
    span = f"From {rows[0].loss!s:.6} to {rows[-1].loss!s:.6}."
    pace = ("pace", "Wall clock by round", "Training alone, and the whole round.")
    charts = [
        line_chart("loss", title, span, "training loss", {"training loss": losses}),
        line_chart(*pace, "seconds", times, 0.0),
    ]
    return Section("rounds", "By round", [text], charts, [table])


def _cost(facts: Run, names: Mapping[int, str]) -> Section:
    def total(way: str, client: int) -> int:
        return sum(getattr(row, way).get(client, 0) for row in facts.rows)

    pairs = {k: (total("bytes_down", k), total("bytes_up", k)) for k in names}
    down, up = (sum(pair[way] for pair in pairs.values()) for way in (0, 1))
    text = f"{size(down)} of models went to the clients, {size(up)} came back."
    if not facts.client_seconds:
        text += " Seconds are sums over clients: secure aggregation hides the rest."
    rows: list[Row] = [
        (names[k], *(Cell(f"{n:,}", n) for n in pair), str(sum(k in r.absent for r in facts.rows)))
        for k, pair in pairs.items()
    ]
    moved = Table(
        "Bytes of models by client, over all rounds",
        ("client", "to the client", "to the server", "rounds missed"),
        [*rows, ("all", f"{down:,}", f"{up:,}", "")],
        longest=max(map(max, pairs.values())),
    )
    kinds = Table(
        "Bytes by phase of the conversation; arrays and byte strings of all messages",
        ("message", "way", "messages", "errors", "bytes"),
        [
            (
                f"{e['type']} / {e['stage']}" if e["stage"] else str(e["type"]),
                *(e["way"], f"{e['count']:,}", f"{e['errors']:,}", f"{e['bytes']:,}"),
            )
            for e in facts.messages
        ],
    )
    return Section("cost", "Cost", [text], tables=[moved, *_seconds(facts, names), kinds])


def _seconds(facts: Run, names: Mapping[int, str]) -> list[Table]:
    rows, by_client = facts.rows, facts.client_seconds
    total = {p: sum(row.seconds.get(p) or 0.0 for row in rows) for row in rows for p in row.seconds}
    # Without the phases of other methods.
    phases = [phase for phase in total if total[phase]]
    by = {names[k]: by_client[k] for k in sorted(by_client)} | {"all": total}
    longest = max(total.values(), default=0.0)
    return [
        Table(
            "Seconds of all clients by phase of training",
            ("phase", "seconds"),
            [(phase, Cell(f"{_rounded(total[phase])} s", total[phase])) for phase in phases],
            longest=longest,
        ),
        Table(
            "Seconds by phase and client; phases of the server have no client",
            ("", *phases, "all"),
            [
                (
                    *(name, *(_rounded(s.get(p)) for p in phases)),
                    _rounded(sum(value or 0.0 for value in s.values())),
                )
                for name, s in by.items()
            ],
        ),
    ]


def _privacy(facts: Run) -> Section:
    known_facts = facts.privacy
    charts, tables = [], []
    lines = [" ".join(line.split()) for line in privacy_report.promises({"privacy": known_facts})]
    lines = [f"{line[0].upper()}{line[1:]}." for line in lines]
    with suppress(UserError):  # the method of a package that is not installed here
        card = get_spec(facts.status.method).card
        lines.append(f"What a client of {facts.status.method} sends: {card.leaves_client}.")
    if known_facts["dp"] != "none":
        title, unit = "Epsilon of training nodes by round", "epsilon of training nodes"
        spent: Points = [(row.round, row.epsilon) for row in facts.rows]
        charts.append(line_chart("epsilon", title, lines[1], unit, {"spent": spent}, 0.0))
    try:
        # Without the last two columns, counts and bytes of whole messages: a table above has them.
        held = [row[:-2] for row in privacy_report.table({"messages": facts.messages})]
        caption, headings = "What messages held, and who could read it", privacy_report.COLUMNS
        tables.append(Table(caption, headings[:-2], held, numbers=False))
    except UserError as error:
        lines.append(str(error))
    return Section("left", "What left the clients", lines, charts, tables)


def _record(facts: Run, clients: Mapping[int, str]) -> Section:
    result, lines = facts.result, []
    if "calibration" in result:
        lines.append(f"Probabilities: {Calibration(**result['calibration'])}.")
    if "tokens" in result:
        lines += [f"Tokens: {line}." for line in ledger_lines(result["tokens"])]
    if "data_sha256" in result:
        lines.append(
            "Hashes of data and evidence include a secret salt that stays with the client: they "
            "tell nothing of it, and `dance-flwr evidence verify` compares them."
        )
    defaults = flatten(RunConfig())
    keys = [(k, str(v), str(defaults.get(k, ""))) for k, v in facts.config.items()]
    changed, headings = [row for row in keys if row[1] != row[2]], ("key", "value", "default")
    differ = f"{counted(len(changed), 'key')} that {'differs' if len(changed) == 1 else 'differ'}"
    tables = [
        Table(f"Configuration: {differ} from the default", headings, changed, numbers=False),
        Table("Configuration: all keys", headings, keys, numbers=False),
        _fingerprints(facts, clients),
    ]
    return Section("record", "Record of the run", lines, tables=tables)


def _fingerprints(facts: Run, clients: Mapping[int, str]) -> Table:
    result: Mapping[str, Any] = facts.result
    rows = [
        ("run", facts.status.run),
        ("provenance of the code", facts.provenance),
        ("model", str(result.get("model_fingerprint", ""))),
    ]
    for key, what in (("data_sha256", "data"), ("evidence_sha256", "evidence")):
        rows += [
            (f"{what} of {_numbered(int(k), clients)}", str(v))
            for k, v in result.get(key, {}).items()
        ]
    rows += [(name, str(version)) for name, version in result.get("versions", {}).items()]
    devices = result.get("devices", ())
    names = result.get("data_sha256") or range(len(devices))  # both are of the same clients
    rows += [
        (f"device of {_numbered(int(k), clients)}", str(v))
        for k, v in zip(names, devices, strict=False)
    ]
    present = [row for row in rows if row[1]]
    return Table("Fingerprints, versions and devices", ("what", "value"), present, numbers=False)
