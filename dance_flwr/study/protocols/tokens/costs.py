"""Tokens of a row by ledger, and what they are divided by."""

from collections.abc import Callable, Iterable, Mapping

from dance_flwr.methods import get_spec
from dance_flwr.runs.token_ledgers import llm_tokens
from dance_flwr.study.engine.cells import Row
from dance_flwr.study.reports.tables import NOTHING, Group
from dance_flwr.study.reports.trained_nodes import class_counts

Metric = Callable[[Row], float | None]


def encoder_total(row: Row) -> float | None:
    """Return tokens of all texts that the encoder read, each once."""
    if "tokens" in row.result:
        return float(row.result["tokens"]["encoder"]["fresh"])
    return float(sum(row.result["encoder_tokens"]))


def evidence_total(row: Row) -> float | None:
    """Return tokens of the evidence of all refreshes of a run; None without evidence."""
    if "tokens" in row.result:
        return float(row.result["tokens"]["evidence"]["tokens"]) or None
    if not row.result["per_condensed_node"].get("nodes_per_round"):
        return None
    counts = row.result.get("counts_per_round", {})
    return float(counts.get("evidence-tokens", 0.0) * row.result["rounds"]) or None


def distinct_total(row: Row) -> float | None:
    """Return tokens of the chunks that were evidence at least once; None without a ledger."""
    if "tokens" not in row.result:
        return None
    return float(row.result["tokens"]["evidence"]["distinct_tokens"]) or None


def llm_total(row: Row) -> float | None:
    """Return tokens of the language model, prompts and replies, fresh and cached; None for none."""
    if "tokens" not in row.result:
        return None
    return float(llm_tokens(row.result["tokens"])) or None


LEDGERS: Mapping[str, Metric] = {
    "encoder": encoder_total,
    "evidence": evidence_total,
    "evidence, each chunk once": distinct_total,
    "language model": llm_total,
}


def trained_on(row: Row) -> float | None:
    """Return condensed nodes of all clients; without condensation, labelled training nodes.

    Where labelled nodes rotate, those of one round.
    """
    supervised = row.result.get("per_condensed_node", {}).get("supervised_per_round")
    if supervised is not None:
        return float(supervised)
    return float(sum(sum(client.values()) for client in class_counts(row))) or None


def correct(row: Row) -> float | None:
    """Return correct test predictions of all clients; None where single clients are not known."""
    nodes = sum(row.result["clients"]["test_nodes"])
    return float(round(row.result["test_accuracy"] * nodes)) or None


_UNITS: Mapping[str, Metric] = {
    "clients": lambda row: float(row.config["clients"]),
    "nodes": lambda row: float(sum(row.result["nodes_per_client"])),
    "trained on": trained_on,
    "correct": correct,
}


def per(total: Metric, what: str) -> Metric:
    """Return a metric over the number of "clients", "nodes", "trained on" or "correct" ones."""

    def value(row: Row) -> float | None:
        tokens, unit = total(row), _UNITS[what](row)
        return None if tokens is None or not unit else tokens / unit

    return value


def denominator(group: Group) -> str:
    """Return what the nodes trained on are."""
    card = get_spec(str(group.labels["method"])).card
    if card.condenses:
        return "condensed"
    return "labelled, of a round" if card.rotates else "labelled"


def llm_share(name: str) -> Metric:
    """Return a metric: one count of the language model's ledger, None without that ledger."""

    def value(row: Row) -> float | None:
        return float(row.result["tokens"]["llm"][name]) if "tokens" in row.result else None

    return value


def names_of_tokenisers(rows: Iterable[Row]) -> set[str]:
    """Return the names of what counted the language model's tokens."""
    found = (row.result["tokens"]["llm"] for row in rows if "tokens" in row.result)
    return {name for ledger in found for name in ledger.get("tokenisers", ())}


def tokenisers(rows: Iterable[Row]) -> str:
    """Return these names as text."""
    return ", ".join(sorted(names_of_tokenisers(rows))) or NOTHING
