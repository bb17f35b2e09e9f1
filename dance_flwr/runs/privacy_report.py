"""`dance-flwr report RUN --privacy`: what messages held and who could read it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dance_flwr.errors import counted
from dance_flwr.federation.declarations import WITHHELD, disclosure, entries
from dance_flwr.federation.flower import SecAggStage
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.keys import DOWN, UP
from dance_flwr.federation.wire.rules import Disclosure, Kind
from dance_flwr.runs.result import withholds_counts
from dance_flwr.terminal import size

HEADINGS = ("message", "what it held", "who could read it", "messages", "bytes of arrays and keys")
COMPARE = (
    "`dance-flwr site privacy` at a site and `dance-flwr report RUN --privacy` at the server print "
    "the same digest where both recorded the same answers of that site: kinds, numbers and bytes."
)
NEVER = "No message has an entry for a text, an id, an edge, evidence or the label of a node."

_NAMES = {
    (keys.HELLO, ""): "greeting",
    (keys.DESCRIBE, ""): "description",
    (keys.EXCHANGE, ""): "exchange before round 1",
    (keys.TRAIN, ""): "training",
    (keys.EVALUATE, ""): "scores",
    (keys.SEAL, ""): "seal",
    (keys.TRAIN, SecAggStage.SETUP): "masks: public keys",
    (keys.TRAIN, SecAggStage.SHARE_KEYS): "masks: shares of secrets",
    (keys.WEIGH, SecAggStage.COLLECT_MASKED_VECTORS): "masked sum of sizes",
    (keys.TRAIN, SecAggStage.COLLECT_MASKED_VECTORS): "masked sum of training",
    (keys.EVALUATE, SecAggStage.COLLECT_MASKED_VECTORS): "masked sum of scores",
    (keys.TRAIN, keys.SURVIVORS): "masks: who is in the sum",
    (keys.TRAIN, SecAggStage.UNMASK): "masks: taking them off",
}


def name_of(message: Mapping[str, Any]) -> str:
    """Return the name of a message in reports, by its type and its stage of a masked sum."""
    kind = message["type"], message["stage"]
    return _NAMES.get(kind) or " / ".join(filter(None, kind))


def table(messages: Iterable[Mapping[str, Any]], way: str = UP) -> list[tuple[str, ...]]:
    """Return what the messages of one way held, with the columns `HEADINGS`.

    A message has a row for each thing that it held; its numbers are in the first.

    Parameters
    ----------
    messages : rows of a run's record, or lines of a site's own
    """
    every: dict[str, dict[Disclosure, None]] = {}
    totals: dict[str, list[int]] = {}
    for entry in (entry for entry in messages if entry["way"] == way):
        name = name_of(entry)
        every.setdefault(name, {}).update(dict.fromkeys(sorted(told_by([entry]))))
        total = totals.setdefault(name, [0, 0])
        total[0] += entry.get("count", 1)
        total[1] += entry["bytes"]
    rows: list[tuple[str, ...]] = []
    for name, told in every.items():
        for place, each in enumerate(told):
            readers = each.readers if way == UP else "its addressee"
            note = f" ({each.assumption})" if each.assumption else ""
            numbers = [f"{number:,}" if place == 0 else "" for number in totals[name]]
            rows.append((name, each.what, readers + note, *numbers))
    return rows


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return what left the clients, who could read it, what never left, and digests of records."""
    every = result["messages"]
    up, down = ([entry for entry in every if entry["way"] == way] for way in (UP, DOWN))
    records = [f"client {client} {of}" for client, of in result.get("records", {}).items() if of]

    def total(of: Sequence[Mapping[str, Any]]) -> str:
        number, length = (sum(entry[name] for entry in of) for name in ("count", "bytes"))
        return f"{counted(number, 'message')} ({size(length)} of arrays and keys)"

    return [
        f"{counted(int(result['config']['clients']), 'client')} sent {total(up)} and received "
        f"{total(down)} in {counted(len(result['history']), 'round')}. They sent: "
        f"{', '.join(sent(result))}.",
        " ".join(promises(result)),
        NEVER,
        # Sites compare them with those of their own records.
        *([f"Digests of the records: {', '.join(records)}. {COMPARE}"] if records else []),
    ]


def sent(result: Mapping[str, Any]) -> list[str]:
    """Return all that the clients of a run sent, in a few words each, models first."""
    privacy = result["privacy"]
    up = [entry for entry in result["messages"] if entry["way"] == UP]
    dp = privacy["dp"] if withholds_counts(result) else "none"
    return briefs(up, dp, masks=privacy["secure_aggregation"])


def briefs(messages: Iterable[Mapping[str, Any]], dp: str, *, masks: bool) -> list[str]:
    """Return what messages held, in a few words each; entries that are withheld are named so."""
    told = told_by(messages)
    words = []
    for each in (entry.told for _, _, _, entry in entries() if entry.told in told):
        zero = dict(each.under).get(dp) is Kind.WITHHELD or (masks and each in WITHHELD)
        words.append(f"{each.brief} (withheld)" if zero else each.brief)
    return list(dict.fromkeys(words))


def told_by(entries: Iterable[Mapping[str, Any]]) -> set[Disclosure]:
    """Return what messages disclose, each once; a key without a description is an error."""
    return {
        disclosure(record, key, entry["way"])
        for entry in entries
        for record, names in entry["keys"].items()
        for key in names
    }


def promises(result: Mapping[str, Any]) -> list[str]:
    """Return what the run promised and spent, a sentence each."""
    privacy = result["privacy"]
    masks = "No secure aggregation: the server reads models and numbers of each client."
    if privacy["secure_aggregation"]:
        masks = "Secure aggregation: the server reads sums over the clients."
    if privacy["dp"] == "none":
        none = "No differential privacy: nothing bounds what a model reveals of a client."
        return [masks, none]
    server = ", but not to the server" if privacy["dp"] == "central" else ""
    lines = [
        masks,
        f"Differential privacy ({privacy['dp']}): epsilon {privacy['epsilon']:.4g} of training "
        f"nodes at delta {privacy['delta']:g} bounds what a model reveals of a client{server}; "
        f"noise multiplier {privacy['noise_multiplier']:.4g}, clipping norm "
        f"{privacy['clipping_norm']:g}.",
    ]
    # Why (decision 9): noise from the seed of a run can be computed by whoever knows the seed.
    if privacy["seeded"]:
        void = (
            "Void: the noise came from the run's seed (privacy.seeded); validations were counted."
        )
        return [*lines, void]
    zeros = "Losses, seconds and counts were sent as 0"
    return [*lines, f"{zeros}: no count of validation or test nodes left a client."]
