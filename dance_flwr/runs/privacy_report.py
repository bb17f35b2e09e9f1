"""`dance-flwr report RUN --privacy`: what messages held and who could read it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.federation.declarations import SCORED, disclosure, entries
from dance_flwr.federation.wire.keys import DOWN
from dance_flwr.federation.wire.rules import Disclosure
from dance_flwr.runs.result import withholds_counts

COLUMNS = (
    *("message", "way", "what it held", "who could read it", "assumption", "messages", "bytes"),
)


def table(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return what each message held, a row each with the columns `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for entry in _messages(result):
        name = f"{entry['type']} / {entry['stage']}" if entry["stage"] else entry["type"]
        for told in sorted(_disclosed([entry])):
            reader = told.readers if entry["way"] != DOWN else "the client it is sent to"
            numbers = (str(entry["count"]), f"{entry['bytes']:,}")
            rows.append((name, entry["way"], told.what, reader, told.assumption, *numbers))
    return rows


def sent(result: Mapping[str, Any]) -> list[str]:
    """Return all that the clients of a run sent, in a few words each, models first."""
    found = _disclosed([entry for entry in _messages(result) if entry["way"] != DOWN])
    known = [entry.told for _, _, _, entry in entries() if entry.told in found]
    withheld = f"{SCORED.brief} (all 0)" if withholds_counts(result) else SCORED.brief
    return list(dict.fromkeys(withheld if told == SCORED else told.brief for told in known))


def _disclosed(entries: Iterable[Mapping[str, Any]]) -> set[Disclosure]:
    """Return what messages disclose, each once; a key without a description is an error."""
    return {
        disclosure(record, key, entry["way"])
        for entry in entries
        for record, keys in entry["keys"].items()
        for key in keys
    }


def _messages(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if "messages" not in result:
        raise UserError(
            "privacy report: expected a run with a record of its messages, found none; run it again"
        )
    messages: Sequence[Mapping[str, Any]] = result["messages"]
    return messages


def promises(result: Mapping[str, Any]) -> list[str]:
    """Return what the run promised and spent, a line each."""
    privacy = result["privacy"]
    masks = "on: the server reads sums" if privacy["secure_aggregation"] else "off"
    lines = [f"secure aggregation   {masks}"]
    if privacy["dp"] == "none":
        return [*lines, "differential privacy none: no bound on what a model reveals of a client"]
    spent = (
        f"epsilon {privacy['epsilon']:.4g} of training nodes at delta {privacy['delta']:g}, "
        f"{privacy['dp']}, per client, of the model updates"
    )
    detail = (
        f"noise multiplier {privacy['noise_multiplier']:.4g}, "
        f"clipping norm {privacy['clipping_norm']:g}"
    )
    lines += [
        f"differential privacy {spent}",
        f"                     {detail}; losses, seconds and counts of a round are not covered",
    ]
    # Why (decision 9): noise from the seed of a run can be computed by whoever knows the seed.
    if privacy["seeded"]:
        lines.append(
            "                     void: the noise came from the run's seed (privacy.seeded), and "
            "validations were counted"
        )
    else:
        lines.append("                     no count of validation or test nodes left a client")
    return lines
