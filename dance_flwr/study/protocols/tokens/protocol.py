"""Tokens: what each method reads, encodes and asks, in three ledgers that are never added.

The runs are those of the main table. DANCE's tokens of a language model are of runs of their own
that summarise the evidence of every core node, asked for by `--set llm.summaries=core`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr.llm.config import CORE
from dance_flwr.study.engine.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr.study.engine.cells import dataset_name as short_name
from dance_flwr.study.engine.llm_rows import stamp
from dance_flwr.study.protocols.main_table import every_ratio
from dance_flwr.study.protocols.tokens.claim import SUMMARIES, claims, readings
from dance_flwr.study.protocols.tokens.costs import LEDGERS, denominator, llm_share, per, tokenisers
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.tables import Group, dataset_section, markdown
from dance_flwr.study.reports.trained_nodes import (
    full_tokens_per_node,
    selected,
    tokens_of_a_refresh,
)

HOW = (
    "Tokens are the encoder's, without special tokens, after `max-chunks` cut the longest texts. "
    "Per condensed node and refresh: neighbours beyond the node itself, chunks, and tokens of "
    "those chunks, as the clients counted them. The share is all tokens of the evidence of one "
    "refresh over all tokens of the local texts. A method that does not condense, or selects no "
    "text, has a dash."
)
HOW_LEDGERS = (
    "Three ledgers over a whole run, which are never added to each other. Encoder: every text "
    "once. Evidence: chunks of all refreshes, as often as they were selected, and each chunk once, "
    "which is what a cache has to process. Language model: prompts and replies, fresh and from "
    "the client's cache; a repeated run changes what is fresh, not the total. The nodes trained "
    "on are the condensed ones of a method that condenses, and the labelled training nodes of any "
    "other, as the line says. A dash: the run is older than the ledger, or has none."
)
_READS = ("faithfulness", "main-table")


def _cells(request: Request) -> list[Cell]:
    """Return the cells of the main table, and those with summaries where they are asked for."""
    overrides = dict(request.overrides)
    asked = overrides.pop("llm.summaries", None)
    plain = replace(request, overrides=overrides)
    cells = every_ratio(plain)
    if asked != CORE:
        return cells
    for dataset in request.datasets:
        largest = max(request.ratios or paper.main_ratios(short_name(dataset)))
        settings: dict[str, Value] = {"condensation-ratio": largest, "llm.summaries": CORE}
        for seed in request.seeds:
            labels: dict[str, Label] = {"dataset": short_name(dataset), "method": "dance"}
            labels |= {"variant": SUMMARIES, "ratio": largest, "seed": seed}
            cells.append(Cell(labels, plain.config(dataset, "dance", seed, settings)))
    return cells


def _render(rows: Sequence[Row]) -> Section:
    own = [row for row in rows if row.experiment not in _READS]
    others = [row for row in rows if row.experiment in _READS]
    return dataset_section(own, f"{HOW}\n\n{HOW_LEDGERS}", partial(_parts, others))


def _parts(others: Sequence[Row], dataset: str, compared: Sequence[Group]) -> list[str]:
    beside = [row for row in others if row.labels["dataset"] == dataset]
    return [
        _evidence_table([group for group in compared if "variant" not in group.labels]),
        _ledger_table(compared),
        _split_table(compared),
        *readings(compared, beside),
        *claims(compared, beside),
    ]


def _evidence_table(compared: Sequence[Group]) -> str:
    headings = ["method", "r", "tokens per node, full text", "condensed nodes, all clients"]
    headings += ["neighbours", "chunks", "tokens", "share of all tokens %", "seeds"]
    return markdown(headings, [_line(group) for group in compared])


def _line(group: Group) -> list[str]:
    line = [group.name(str(group.labels["method"])), str(group.labels["ratio"])]
    line += [group.mean_text(full_tokens_per_node, 1)]
    for count in ("nodes_per_round", "neighbours", "chunks", "tokens"):
        line.append(group.mean_text(partial(selected, count), 1))
    return [*line, group.mean_text(share_of_tokens, 1), group.stat("test_accuracy").seeds]


def _ledger_table(compared: Sequence[Group]) -> str:
    """Return each ledger's tokens in all, and per client, node and correct prediction."""
    headings = ["method", "r", "ledger", "total", "per client", "per node of the graph"]
    headings += ["per node trained on", "which are", "per correct test prediction", "seeds"]
    lines = []
    for group in compared:
        for name, total in LEDGERS.items():
            if not group.stat(total).mean:
                continue
            line = [_name(group), str(group.labels["ratio"]), name, group.mean_text(total, 0)]
            units = ("clients", "nodes", "trained on")
            line += [group.mean_text(per(total, what), 1) for what in units]
            line += [denominator(group), group.mean_text(per(total, "correct"), 1)]
            lines.append([*line, group.stat(total).seeds])
    return markdown(headings, lines)


def _split_table(compared: Sequence[Group]) -> str:
    """Return what was fresh and what came from a cache; empty without a run that has it."""
    asked = [group for group in compared if group.stat(LEDGERS["language model"]).mean]
    if not asked:
        return "No run of these methods has asked a language model."
    names = ("fresh_prompt", "cached_prompt", "fresh_completion", "cached_completion")
    counts = ("fresh_calls", "cached_calls", "failed_calls", "capped_calls")
    lines = [
        [
            _name(group),
            *(group.mean_text(llm_share(name), 0) for name in (*names, *counts)),
            tokenisers(group.rows),
        ]
        for group in asked
    ]
    words = [name.replace("_", " ") for name in (*names, *counts)]
    return markdown(["language model, means of runs", *words, "counted by"], lines)


def _name(group: Group) -> str:
    """Return method and variant, with why its rows are no result, if they are not."""
    name = f"{group.labels['method']} {group.labels.get('variant', '')}".strip()
    why = next((text for text in map(stamp, group.rows) if text), "")
    return group.name(f"{name} [{why}]" if why else name)


def share_of_tokens(row: Row) -> float | None:
    """Return evidence tokens of one refresh over all local tokens, in percent; None without any."""
    tokens = tokens_of_a_refresh(row)
    return None if tokens is None else 100 * tokens / sum(row.result["encoder_tokens"])


EXPERIMENT = Experiment(
    name="tokens",
    title="Tokens",
    question="DANCE handles a small, budgeted part of the text, and takes 33.42 % fewer tokens "
    "than baselines (the paper's compactness and efficiency claims).",
    cells=_cells,
    render=_render,
    reads=_READS,
)
