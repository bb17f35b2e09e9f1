"""The ablation: DANCE without one of its three parts, or without labels in its prediction."""

from collections.abc import Sequence
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import Experiment, Row, Section
from dance_flwr.study.protocols.named_variants import variant_cells_of, variant_section
from dance_flwr.study.protocols.variants import SEED_TEXT, gain_text
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.tables import Group, difference, markdown, paper_text

# The names are the paper's, but for the last; its extensions go with the part that they extend.
VARIANTS: dict[str, dict[str, Value]] = {
    "full": {},
    "w/o TGR": {"dance.topology-rule": "induced", "edge-gates": "none"},
    "w/o TC": {"dance.text-rule": "own", "text-pooling": "attention"},
    "w/o NC": {"dance.core-rule": "random"},
    "w/o labels": {"dance.label-evidence": False, "class-prior": "none"},
}
_OWN_KEYS = {key for settings in VARIANTS.values() for key in settings}
HOW = (
    "w/o TGR: the core keeps the edges of the local graph that lie inside it, and every edge of "
    "that graph weighs 1. w/o TC: the text of a node is all of its own chunks. w/o NC: the core is "
    "drawn at random, labelled or not. w/o labels: training labels enter the loss alone, not the "
    f"prediction. The paper does not say what takes the place of a part. {SEED_TEXT}"
)


def _render(rows: Sequence[Row]) -> Section:
    caption = "Ablation: test accuracy by variant."
    return variant_section(rows, HOW, _table, "ablation", caption, _OWN_KEYS)


def _table(dataset: str, variants: Sequence[Group]) -> str:
    headings = ["variant", "accuracy %", "seeds", "paper %", "difference", "against full, points"]
    headings += ["macro-F1 %", "paper F1 %", "difference"]
    lines = []
    for group in variants:
        variant = str(group.labels["variant"])
        ours = group.stat("test_accuracy")
        theirs = paper.ablation_number(dataset, variant, "accuracy")
        line = [group.name(variant), ours.percent, ours.seeds, paper_text(theirs)]
        line += [difference(ours, theirs), gain_text(group, _full(group, variants))]
        ours = group.stat("test_macro_f1")
        theirs = paper.ablation_number(dataset, variant, "macro_f1")
        lines.append([*line, ours.percent, paper_text(theirs), difference(ours, theirs)])
    return markdown(headings, lines)


def _full(group: Group, variants: Sequence[Group]) -> Group | None:
    """Return the full method under the settings of a variant, None without one.

    Both must know the same settings: rows that are older than a part's setting had no such part.
    """

    def rest(other: Group) -> dict[str, Value]:
        config = {**other.rows[0].config, "seed": ""}
        return {key: "" if key in _OWN_KEYS else value for key, value in config.items()}

    full = (other for other in variants if other.labels["variant"] == "full")
    return next((other for other in full if rest(other) == rest(group)), None)


EXPERIMENT = Experiment(
    name="ablation",
    title="Ablation",
    question="Removing node condensation (NC), text condensation (TC) or topology reconstruction "
    "(TGR) lowers the accuracy on every data set, node condensation most (the paper's ablation "
    "table).",
    cells=partial(variant_cells_of, VARIANTS),
    render=_render,
)
