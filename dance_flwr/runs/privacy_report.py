"""`dance-flwr privacy report`: what a run's messages held, who could read it, on what assumption."""

from collections.abc import Mapping, Sequence
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.federation.server.ledger import DOWN

# (record, key prefix) -> what it is, who can read it, on what that rests. The first that fits
# counts.
_SECAGG = "secaggplus_configs"
_MEANING: tuple[tuple[str, str, str, str, str], ...] = (
    (_SECAGG, "masked_params", "model update, weight and metrics, masked", "nobody; the server reads a sum",
     "fewer than the threshold of clients collude with the server"),
    (_SECAGG, "ctxts", "shares of a client's secrets, encrypted for another client", "their addressee",
     "the server hands on public keys unaltered"),
    (_SECAGG, "shares", "shares of secrets that take masks off", "the server",
     "it asks for one secret of each client; clients refuse to give both"),
    (_SECAGG, "", "public keys, parameters of the protocol, numbers of nodes", "the server, all clients", ""),
    ("layout", "", "names and lengths of the metrics, no values", "the server", ""),
    ("secure-sum", "", "what is to be summed, the range of updates, all nodes together", "all clients", ""),
    ("fitres", "", "constants that Flower's workflow asks for", "the server", ""),
    ("arrays", "", "model parameters", "the server", "of one client: what it trained on can be inferred from them"),
    ("statistics", "", "what the card of the run's method names beside a model", "the server",
     "of one client, in the open"),
    ("given", "", "what the server made of other clients' statistics for this one", "the client it is sent to",
     "single rows may be another client's, in the open"),
    ("exchanged", "", "what the card of the run's method names as exchanged before round 1",
     "the server, other clients", "of one client, in the open"),
    ("metrics", "num-examples", "the client's weight in the mean", "the server", ""),
    ("metrics", "loss", "training loss", "the server", ""),
    ("metrics", "seconds", "seconds by phase", "the server", ""),
    ("metrics", "", "counts of nodes, evidence or hits", "the server", "exact; no noise is added to counts"),
    ("config", "num_nodes", "number of local nodes (0 where it is withheld)", "the server", ""),
    ("config", "encoder_tokens", "number of encoded tokens (0 where it is withheld)", "the server", ""),
    ("config", "", "settings of the run, names of classes, versions", "the server, all clients", ""),
)  # fmt: skip


def meaning(record: str, key: str) -> tuple[str, str, str]:
    """Return (what, who can read it, assumption) of one key of one record.

    Raises
    ------
    UserError : the key is of no known kind
    """
    for part, prefix, what, who, assumption in _MEANING:
        if record.split(".")[0] == part and key.startswith(prefix):
            return what, who, assumption
    raise UserError(
        f"privacy report: expected a key that privacy/report.py describes, found {key!r} of {record!r}"
    )


def table(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return rows (message, way, what, who can read it, assumption, messages, bytes) of a run's
    record.

    Parameters
    ----------
    result : content of `result.json`

    Raises
    ------
    UserError : the run was made by a version that kept no record
    """
    if "messages" not in result:
        raise UserError(
            "privacy report: expected a run with a record of its messages, found none; run it again"
        )
    rows: list[tuple[str, ...]] = []
    for entry in result["messages"]:
        name = f"{entry['type']} / {entry['stage']}" if entry["stage"] else entry["type"]
        found = {meaning(record, key) for record, keys in entry["keys"].items() for key in keys}
        for what, who, assumption in sorted(found):
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


def promises(result: Mapping[str, Any]) -> list[str]:
    """Return what the run promised and spent, a line each."""
    facts = result["privacy"]
    lines = [
        f"secure aggregation   {'on: the server reads sums' if facts['secure_aggregation'] else 'off'}"
    ]
    if facts["dp"] == "none":
        return [*lines, "differential privacy none: no bound on what a model tells of a client"]
    spent = f"epsilon {facts['epsilon']:.4g} at delta {facts['delta']:g}, {facts['dp']}, per client, of the model updates"
    detail = f"noise multiplier {facts['noise_multiplier']:.4g}, clipping norm {facts['clipping_norm']:g}"
    lines += [
        f"differential privacy {spent}",
        f"                     {detail}; counts and metrics are not covered",
    ]
    if facts["seeded"]:
        lines.append(
            "                     void: the noise came from the run's seed (privacy.seeded)"
        )
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
