"""Tokens: text that a method processes per condensed node, from the runs of the main table."""

from collections.abc import Callable, Sequence

from dance_flwr.experiments.cells import Experiment, Row, Section
from dance_flwr.experiments.main_table import every_ratio, full_tokens_per_node
from dance_flwr.experiments.tables import Group, dataset_section, markdown

HOW = (
    "Tokens are the encoder's, without special tokens, after `max-chunks` cut the longest texts. "
    "Per condensed node and refresh: neighbours beyond the node itself, chunks, and tokens of "
    "those chunks, as the clients counted them. The share is all tokens of the evidence of one "
    "refresh over all tokens of the local texts. A method that does not condense, or selects no "
    "text, has a dash."
)


def _render(rows: Sequence[Row]) -> Section:
    headings = ["method", "r", "tokens per node, full text", "condensed nodes, all clients"]
    headings += ["neighbours", "chunks", "tokens", "share of all tokens %", "seeds"]
    return dataset_section(
        rows, HOW, lambda dataset, compared: [markdown(headings, [_line(g) for g in compared])]
    )


def _line(group: Group) -> list[str]:
    line = [group.name(str(group.labels["method"])), str(group.labels["ratio"])]
    line += [group.mean_text(full_tokens_per_node, 1)]
    for count in ("nodes_per_round", "neighbours", "chunks", "tokens"):
        line.append(group.mean_text(_per_node(count), 1))
    return [*line, group.mean_text(share_of_tokens, 1), group.stat("test_accuracy").seeds]


def _per_node(name: str) -> Callable[[Row], float | None]:
    """Return a metric: a count per condensed node, None for a method without condensed nodes."""

    def value(row: Row) -> float | None:
        counts = row.result["per_condensed_node"]
        return float(counts[name]) if counts.get("nodes_per_round") and name in counts else None

    return value


def share_of_tokens(row: Row) -> float | None:
    """Return evidence tokens of one refresh over all local tokens, in percent; None without any."""
    counts = row.result["per_condensed_node"]
    if not counts.get("nodes_per_round") or "tokens" not in counts:
        return None
    tokens = 100 * counts["nodes_per_round"] * counts["tokens"]
    return float(tokens / sum(row.result["encoder_tokens"]))


EXPERIMENT = Experiment(
    name="tokens",
    title="Tokens",
    question="DANCE handles a small, budgeted part of the text (the paper's compactness and "
    "efficiency claims).",
    cells=every_ratio,
    render=_render,
)
