"""The parts of a run's page that rest on its record: cost, what left, privacy, configuration."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError, counted
from dance_flwr.methods import get_spec
from dance_flwr.pages.charts import Amount, Chart, Line, bar_grid, line_chart
from dance_flwr.pages.run_parts import (
    MAX_BARS,
    NO_CHART,
    Section,
    Table,
    numbered,
    sum_of,
    three,
)
from dance_flwr.runs.run import Run
from dance_flwr.terminal import size


def of_record(facts: Run, names: Mapping[int, str]) -> list[Section]:
    """Return the cost, what left the clients, with the privacy spent, and the record of the run."""
    cost = [_cost(facts, names)] if names else []
    return [*cost, _privacy(facts), _record(facts, names)]


def _cost(facts: Run, names: Mapping[int, str]) -> Section:
    def total(way: str, client: int) -> int:
        return sum(getattr(row, way).get(client, 0) for row in facts.rows)

    pairs = {k: (total("bytes_down", k), total("bytes_up", k)) for k in names}
    down, up = (sum(pair[way] for pair in pairs.values()) for way in (0, 1))
    text = f"{size(down)} of models went to the clients, {size(up)} came back."
    if not facts.client_seconds:
        text += " Seconds are sums over clients: secure aggregation hides the rest."
    table = Table(
        "Bytes of models by client, over all rounds",
        ("client", "to the client", "to the server", "rounds missed"),
        [
            *(
                (names[k], f"{a:,}", f"{b:,}", str(sum(k in row.absent for row in facts.rows)))
                for k, (a, b) in pairs.items()
            ),
            ("all", f"{down:,}", f"{up:,}", ""),
        ],
    )
    bars = bar_grid(
        Chart("bytes", "Bytes of models by client", text),
        [names[k] for k in pairs][:MAX_BARS],
        ("to the client", "to the server"),
        [[Amount(n, size(n)) for n in pair] for pair in pairs.values()][:MAX_BARS],
    )
    kinds = Table(
        "Bytes by phase of the conversation; arrays and byte strings of all messages",
        ("message", "way", "messages", "errors", "bytes"),
        [
            (_kind(e), e["way"], f"{e['count']:,}", f"{e['errors']:,}", f"{e['bytes']:,}")
            for e in facts.messages
        ],
    )
    parts = [(bars, table), _seconds(facts, names), (NO_CHART, kinds)]
    return Section("cost", "Cost", [text], parts)


def _seconds(facts: Run, names: Mapping[int, str]) -> tuple[Markup, Table]:
    rows, by_client = facts.rows, facts.client_seconds
    total = {p: sum(row.seconds.get(p) or 0.0 for row in rows) for row in rows for p in row.seconds}
    # Else a method would have a row for every phase of the others.
    phases = [phase for phase in total if total[phase]]
    by = {names[k]: by_client[k] for k in sorted(by_client)} | {"all": total}
    table = Table(
        "Seconds by phase and client; phases of the server have no client",
        ("", *phases, "all"),
        [(name, *(three(s.get(p)) for p in phases), three(sum_of(s))) for name, s in by.items()],
    )
    title = "Seconds of all clients by phase of training"
    amounts = [[Amount(total[phase], f"{three(total[phase])} s")] for phase in phases]
    text = f"{three(sum_of(total))} seconds together."
    return bar_grid(
        Chart("seconds", title, text), phases, ("seconds of all clients",), amounts
    ), table


def _kind(entry: Mapping[str, Any]) -> str:
    return f"{entry['type']} / {entry['stage']}" if entry["stage"] else str(entry["type"])


def _privacy(facts: Run) -> Section:
    from dance_flwr.runs import privacy_report

    known = facts.privacy
    parts: list[tuple[Markup, Table | None]] = []
    lines = [" ".join(line.split()) for line in privacy_report.promises({"privacy": known})]
    lines = [f"{line[0].upper()}{line[1:]}." for line in lines]
    with suppress(UserError):  # the method of a package that is not installed here
        card = get_spec(facts.status.method).card
        lines.append(f"What a client of {facts.status.method} sends: {card.leaves_client}.")
    if known["dp"] != "none":
        chart = Chart("epsilon", "Epsilon of training nodes by round", lines[1])
        spent = Line("spent", [(row.round, row.epsilon) for row in facts.rows])
        parts.append((line_chart(chart, [spent], "epsilon of training nodes", 0.0), None))
    try:
        held = [row[:-2] for row in privacy_report.table({"messages": facts.messages})]
        # Without messages and bytes, which are of all that a message held and in a table above.
        headings = privacy_report.COLUMNS[:-2]
        caption = "What messages held, and who could read it"
        parts.append((NO_CHART, Table(caption, headings, held, numbers=False)))
    except UserError as error:
        lines.append(str(error))
    return Section("left", "What left the clients", lines, parts)


def _record(facts: Run, clients: Mapping[int, str]) -> Section:
    from dance_flwr.nn.calibration import Calibration  # imports torch, which a run has not needed
    from dance_flwr.runs.token_ledgers import ledger_lines

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
    # What a reader looks for; the other keys have a table of their own.
    changed, headings = [row for row in keys if row[1] != row[2]], ("key", "value", "default")
    differ = f"{counted(len(changed), 'key')} that {'differs' if len(changed) == 1 else 'differ'}"
    tables = [
        Table(f"Configuration: {differ} from the default", headings, changed, numbers=False),
        Table("Configuration: all keys", headings, keys, numbers=False),
        _fingerprints(facts, clients),
    ]
    return Section("record", "Record of the run", lines, [(NO_CHART, table) for table in tables])


def _fingerprints(facts: Run, clients: Mapping[int, str]) -> Table:
    result: Mapping[str, Any] = facts.result
    rows = [
        ("run", facts.status.run),
        ("provenance of the code", facts.provenance),
        ("model", str(result.get("model_fingerprint", ""))),
    ]
    for key, what in (("data_sha256", "data"), ("evidence_sha256", "evidence")):
        rows += [
            (f"{what} of {numbered(int(k), clients)}", str(v))
            for k, v in result.get(key, {}).items()
        ]
    rows += [(name, str(version)) for name, version in result.get("versions", {}).items()]
    devices = result.get("devices", ())
    names = result.get("data_sha256") or range(len(devices))  # both are of the same clients
    rows += [
        (f"device of {numbered(int(k), clients)}", str(v))
        for k, v in zip(names, devices, strict=False)
    ]
    known = [row for row in rows if row[1]]
    return Table("Fingerprints, versions and devices", ("what", "value"), known, numbers=False)
