"""Tokens: what each method reads, selects as evidence, and exchanges with a language model.

The runs are those of the main table. DANCE's tokens of a language model are of runs of their own
that summarise the evidence of every core node, asked for by `--set llm.summaries=core`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr.llm.config import CORE
from dance_flwr_studies.engine.cells import Cell, Experiment, Request, Row, Section, dataset_name
from dance_flwr_studies.engine.llm_rows import stamp
from dance_flwr_studies.protocols.main_table import every_ratio
from dance_flwr_studies.protocols.token_claim import (
    HOW_CLAIMS,
    HOW_READINGS,
    SUMMARIES,
    claim_verdict,
    claims,
    llm_total,
    readings,
)
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.tables import (
    NOTHING,
    Group,
    at_largest_ratio,
    by_label,
    groups,
    markdown,
)
from dance_flwr_studies.reports.trained_nodes import selected, tokens_of_a_refresh

HOW = (
    "Tokens are the encoder's, without special tokens, after `max-chunks` cut the longest texts. "
    "Per condensed node and refresh: neighbours beyond the node itself, chunks, and tokens of "
    "those chunks; the share is that of one refresh in all local tokens. Over a whole run: tokens "
    "of the evidence of all refreshes, of its chunks counted once, and of a language model, "
    "prompts and replies, fresh and cached."
)
_READS = ("faithfulness", "main-table")


def _cells(request: Request) -> list[Cell]:
    overrides = dict(request.overrides)
    # For the added cells alone: the runs of the main table stay the same, and are shared.
    summaries = overrides.pop("llm.summaries", None)
    plain = replace(request, overrides=overrides)
    cells = every_ratio(plain)
    if summaries != CORE:
        return cells
    for dataset in request.datasets:
        largest = max(request.ratios or paper.main_ratios(dataset_name(dataset)))
        settings: dict[str, Value] = {"condensation-ratio": largest, "llm.summaries": CORE}
        cells += plain.cells(dataset, "dance", {"variant": SUMMARIES, "ratio": largest}, settings)
    return cells


def _render(rows: Sequence[Row]) -> Section:
    parts = [HOW, f"{HOW_READINGS} {HOW_CLAIMS}"]
    for dataset, (compared, beside) in _by_dataset(rows).items():
        parts += [f"**{dataset}**, {seeds_text(compared)}", *_parts(beside, compared)]
    return Section(tuple(parts))


def _by_dataset(rows: Sequence[Row]) -> dict[str, tuple[list[Group], list[Row]]]:
    tokens = [row for row in rows if row.experiment not in _READS]
    others = [row for row in rows if row.experiment in _READS]
    return {
        str(dataset): (compared, [row for row in others if row.labels["dataset"] == dataset])
        for dataset, compared in by_label(groups(tokens), "dataset").items()
    }


def _parts(beside: Sequence[Row], compared: Sequence[Group]) -> list[str]:
    largest = at_largest_ratio(compared)
    totals = {group.mean_text(encoder_total, 0) for group in largest} - {NOTHING}
    return [
        f"Tokens that the encoder reads, every text once: {' to '.join(sorted(totals))}.",
        _evidence_table(largest),
        *readings(compared, beside),
        *claims(compared, beside),
    ]


def _evidence_table(compared: Sequence[Group]) -> str:
    headings = ["method", "r", "neighbours", "chunks", "tokens", "share %", *_LEDGERS]
    lines = []
    for group in compared:
        ledgers = [group.stat(total).mean for total in _LEDGERS.values()]
        if not any((*ledgers, group.stat(partial(selected, "tokens")).mean)):
            continue
        line = [_name(group), str(group.labels["ratio"])]
        counts = ("neighbours", "chunks", "tokens")
        line += [group.mean_text(partial(selected, count), 1) for count in counts]
        line += [group.mean_text(share_of_tokens, 1)]
        lines.append([*line, *(group.mean_text(total, 0) for total in _LEDGERS.values())])
    return markdown(headings, lines, 2)


def encoder_total(row: Row) -> float:
    """Return tokens of all texts that the encoder read, each once."""
    return float(row.result["tokens"]["encoder"]["fresh"])


def evidence_total(row: Row) -> float | None:
    """Return tokens of the evidence of all refreshes of a run; None without evidence."""
    return float(row.result["tokens"]["evidence"]["tokens"]) or None


def distinct_total(row: Row) -> float | None:
    """Return tokens of the chunks that were evidence at least once; None without any."""
    return float(row.result["tokens"]["evidence"]["distinct_tokens"]) or None


# Never added to each other.
_LEDGERS = {
    "all refreshes": evidence_total,
    "each chunk once": distinct_total,
    "language model": llm_total,
}


def _name(group: Group) -> str:
    name = f"{group.labels['method']} {group.labels.get('variant', '')}".strip()
    why = next((text for text in map(stamp, group.rows) if text), "")
    return group.name(f"{name} [{why}]" if why else name)


def share_of_tokens(row: Row) -> float | None:
    """Return evidence tokens of one refresh over all local tokens, in percent; None without any."""
    tokens = tokens_of_a_refresh(row)
    return None if tokens is None else 100 * tokens / sum(row.result["encoder_tokens"])


EXPERIMENT = Experiment(
    title="Tokens",
    question="DANCE handles a small, budgeted part of the text, and takes 33.42 % fewer tokens "
    "than baselines (the paper's compactness and efficiency claims).",
    cells=_cells,
    render=_render,
    verdict=lambda rows: claim_verdict(_by_dataset(rows)),
    metrics={},
    reads=_READS,
)
