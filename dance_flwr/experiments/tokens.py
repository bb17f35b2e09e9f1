"""Tokens: how much text a method handles per condensed node, against the full text; from the main
table's runs.
"""

from collections.abc import Callable, Sequence

from dance_flwr.experiments import main_table
from dance_flwr.experiments.cells import Cell, Experiment, Request, Row, Section
from dance_flwr.experiments.main_table import full_tokens_per_node
from dance_flwr.experiments.tables import NOTHING, Group, by_label, groups, markdown

HOW = (
    "Tokens are the encoder's, without special tokens, after `max-chunks` cut the longest texts. Per condensed node "
    "and refresh: neighbours beyond the node itself, chunks, and tokens of those chunks, as the clients counted them. "
    "The share is all tokens of the evidence of one refresh over all tokens of the local texts. A method that does "
    "not condense, or selects no text, has a dash."
)


def _cells(request: Request) -> list[Cell]:
    return main_table.EXPERIMENT.cells(request)


def _render(rows: Sequence[Row]) -> Section:
    parts = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        headings = ["method", "r", "tokens per node, full text", "condensed nodes, all clients"]
        headings += ["neighbours", "chunks", "tokens", "share of all tokens %", "seeds"]
        parts += [f"**{dataset}**", markdown(headings, [_line(group) for group in found])]
    return Section(tuple(parts))


def _line(group: Group) -> list[str]:
    line = [group.name(str(group.labels["method"])), str(group.labels["ratio"])]
    line += [_mean(group, full_tokens_per_node), _mean(group, _per_node("nodes_per_round"))]
    line += [_mean(group, _per_node(name)) for name in ("neighbours", "chunks", "tokens")]
    return [*line, _mean(group, share_of_tokens), group.stat("test_accuracy").seeds]


def _per_node(name: str) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        counts = row.result["per_condensed_node"]
        return float(counts[name]) if counts.get("nodes_per_round") and name in counts else None

    return value


def share_of_tokens(row: Row) -> float | None:
    """Return evidence tokens of one refresh over all local tokens, in percent; None without
    evidence.
    """
    counts = row.result["per_condensed_node"]
    if not counts.get("nodes_per_round") or "tokens" not in counts:
        return None
    return float(
        100 * counts["nodes_per_round"] * counts["tokens"] / sum(row.result["encoder_tokens"])
    )


def _mean(group: Group, metric: Callable[[Row], float | None]) -> str:
    value = group.stat(metric).mean
    return NOTHING if value is None else f"{value:.1f}"


EXPERIMENT = Experiment(
    name="tokens",
    title="Tokens",
    question="DANCE handles a small, budgeted part of the text (the paper's compactness and efficiency claims).",
    cells=_cells,
    render=_render,
)
