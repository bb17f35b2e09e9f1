"""`dance-flwr privacy report`: what messages held and who could read it."""

from collections.abc import Mapping, Sequence
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.federation.disclosures import SCORED, TENSORS, disclosure, disclosures
from dance_flwr.federation.server.message_log import DOWN
from dance_flwr.runs.reader import withholds_counts


def table(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the report, under the headings `columns`: what each message held."""
    rows: list[tuple[str, ...]] = []
    for entry in _messages(result):
        name = f"{entry['type']} / {entry['stage']}" if entry["stage"] else entry["type"]
        # A set, as many keys share one description. A key without one is an error.
        disclosed = {
            disclosure(record, key) for record, keys in entry["keys"].items() for key in keys
        }
        for what, who, assumption, _ in sorted(disclosed):
            reader = who if entry["way"] != DOWN else "the client it is sent to"
            rows.append(
                (
                    name,
                    entry["way"],
                    what,
                    reader,
                    assumption,
                    str(entry["count"]),
                    f"{entry['bytes']:,}",
                )
            )
    return rows


def sent(result: Mapping[str, Any]) -> list[str]:
    """Return all that the clients of a run sent, in a few words each, models first."""
    entries = [entry["keys"] for entry in _messages(result) if entry["way"] != DOWN]
    found = {
        disclosure(record, key)
        for records in entries
        for record, names in records.items()
        for key in names
    }
    every = [what for what in (*TENSORS.values(), *disclosures().values()) if what in found]
    zero = f"{SCORED.brief} (all 0)"
    return list(
        dict.fromkeys(
            zero if what == SCORED and withholds_counts(result) else what.brief for what in every
        )
    )


def _messages(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the record of the messages of a run."""
    if "messages" not in result:
        raise UserError(
            "privacy report: expected a run with a record of its messages, found none; run it again"
        )
    messages: Sequence[Mapping[str, Any]] = result["messages"]
    return messages


def promises(result: Mapping[str, Any]) -> list[str]:
    """Return what the run promised and spent, a line each."""
    facts = result["privacy"]
    lines = [
        "secure aggregation   "
        + ("on: the server reads sums" if facts["secure_aggregation"] else "off")
    ]
    # Said in words: an empty line could be read as a guarantee.
    if facts["dp"] == "none":
        return [*lines, "differential privacy none: no bound on what a model reveals of a client"]
    spent = (
        f"epsilon {facts['epsilon']:.4g} of training nodes at delta {facts['delta']:g}, "
        f"{facts['dp']}, per client, of the model updates"
    )
    detail = (
        f"noise multiplier {facts['noise_multiplier']:.4g}, "
        f"clipping norm {facts['clipping_norm']:g}"
    )
    lines += [
        f"differential privacy {spent}",
        f"                     {detail}; losses, seconds and counts of a round are not covered",
    ]
    # Why (decision 9): noise from the seed of a run can be computed by whoever knows the seed.
    if facts["seeded"]:
        lines.append(
            "                     void: the noise came from the run's seed (privacy.seeded), and "
            "validations were counted"
        )
    else:
        lines.append("                     no count of validation or test nodes left a client")
    return lines


def columns() -> Sequence[str]:
    """Return the headings of `table`."""
    return (
        "message",
        "way",
        "what it held",
        "who could read it",
        "assumption",
        "messages",
        "bytes",
    )
