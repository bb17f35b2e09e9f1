"""The parts of a run's page that rest on its record: what left, privacy, tokens, fingerprints."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec
from dance_flwr.pages.charts import Chart, Line, line_chart
from dance_flwr.pages.run_parts import LATER, NO_CHART, Section, Table, six
from dance_flwr.runs.facts import RunFacts


def of_record(facts: RunFacts) -> list[Section]:
    """Return what left whom, privacy spent, calibration, tokens, configuration, fingerprints."""
    return [
        _left(facts),
        _privacy(facts),
        _calibration(facts.result),
        _tokens(facts.result),
        _configuration(facts.config),
        _fingerprints(facts),
    ]


def _left(facts: RunFacts) -> Section:
    from dance_flwr.runs import privacy_report

    title = "What left whom"
    try:
        rows = privacy_report.table({"messages": facts.messages})
    except UserError as error:
        return Section("left", title, [str(error)])
    lines = [
        "Every kind of message of this run, what it held and who could read it, from the server's "
        "own record."
    ]
    with suppress(UserError):  # the method of a package that is not installed here
        card = get_spec(facts.status.method).card
        lines.append(f"What a client of {facts.status.method} sends: {card.leaves_client}.")
    # Without messages and bytes, which are of all that a message held and in a table above.
    headings, held = privacy_report.columns()[:-2], [row[:-2] for row in rows]
    table = Table("What messages held", headings, held, numbers=False)
    return Section("left", title, lines, [(NO_CHART, table)])


def _privacy(facts: RunFacts) -> Section:
    from dance_flwr.runs import privacy_report

    title, known = "Privacy spent", facts.privacy
    if not known:
        return Section("privacy", title, ["Not known: the run has not begun."])
    lines = [" ".join(line.split()) for line in privacy_report.promises({"privacy": known})]
    if known["dp"] == "none":
        return Section("privacy", title, lines)
    rows = facts.rows
    chart = Chart("epsilon", "Epsilon of training nodes by round", lines[1])
    drawn = line_chart(chart, [Line("spent", [(r.round, r.epsilon) for r in rows])], "epsilon", 0.0)
    table = Table(
        "Epsilon of training nodes up to each round",
        ("round", "epsilon"),
        [(str(row.round), six(row.epsilon)) for row in rows],
    )
    return Section("privacy", title, lines, [(drawn, table)])


def _calibration(result: Mapping[str, Any]) -> Section:
    from dance_flwr.nn.calibration import Calibration  # imports torch, which a run has not needed

    if "calibration" not in result:
        return Section("calibration", "Probabilities", [LATER])
    text = f"{Calibration(**result['calibration'])}."
    return Section("calibration", "Probabilities", [text[0].upper() + text[1:]])


def _tokens(result: Mapping[str, Any]) -> Section:
    from dance_flwr.runs.token_ledgers import ledger_lines

    lines = ledger_lines(result["tokens"]) if "tokens" in result else [LATER]
    return Section("tokens", "Tokens", [line[0].upper() + line[1:] for line in lines])


def _configuration(config: Mapping[str, Any]) -> Section:
    defaults = flatten(RunConfig())
    rows = [(k, str(v), str(defaults.get(k, ""))) for k, v in config.items()]
    # What a reader looks for; the other keys are folded.
    changed = [row for row in rows if row[1] != row[2]]
    text = f"{len(changed)} of {len(rows)} keys differ from their defaults."
    headings = ("key", "value", "default")
    some = Table("Keys that differ from their defaults", headings, changed, numbers=False)
    every = Table("All keys", headings, rows, folded="All keys", numbers=False)
    parts = [(NO_CHART, some), (NO_CHART, every)] if rows else []
    return Section("configuration", "Configuration", [text], parts)


def _fingerprints(facts: RunFacts) -> Section:
    result = facts.result
    rows = [
        ("provenance of the code", facts.provenance),
        ("model", str(result.get("model_fingerprint", ""))),
    ]
    for key, what in (("data_sha256", "data"), ("evidence_sha256", "evidence")):
        rows += [(f"{what} of client {k}", str(v)) for k, v in result.get(key, {}).items()]
    rows += [(name, str(version)) for name, version in result.get("versions", {}).items()]
    devices = result.get("devices", ())
    names = result.get("data_sha256") or range(len(devices))  # both are of the same clients
    rows += [(f"device of client {k}", str(v)) for k, v in zip(names, devices, strict=False)]
    text = (
        "Hashes of data and evidence include a secret salt that stays with the client: they tell "
    )
    text += "nothing of it, and `dance-flwr evidence verify` compares them."
    known = [row for row in rows if row[1]]
    table = Table("Fingerprints, versions and devices", ("what", "value"), known, numbers=False)
    return Section("fingerprints", "Fingerprints", [text], [(NO_CHART, table)])
