"""The ablation: DANCE without one of its three parts."""

from collections.abc import Sequence
from functools import partial

from dance_flwr.config.options import Value
from dance_flwr.experiments import paper
from dance_flwr.experiments.cells import Experiment, Row, Section
from dance_flwr.experiments.named_variants import variant_cells_of, variant_section
from dance_flwr.experiments.tables import Group, difference, markdown, paper_text
from dance_flwr.experiments.variants import SEED_TEXT, find, gain_text

# The names are the paper's.
VARIANTS: dict[str, dict[str, Value]] = {
    "full": {},
    "w/o TGR": {"dance.topology-rule": "induced"},
    "w/o TC": {"dance.text-rule": "own"},
    "w/o NC": {"dance.core-rule": "random"},
}
HOW = (
    "w/o TGR: the core keeps the edges of the local graph that lie inside it. w/o TC: a condensed "
    "node's text is all chunks of the node itself. w/o NC: the core is drawn at random, labelled "
    f"or not. The paper does not say what takes the place of a part. {SEED_TEXT}"
)


def _render(rows: Sequence[Row]) -> Section:
    return variant_section(rows, HOW, _table, "ablation", "Ablation: test accuracy by variant.")


def _table(dataset: str, variants: Sequence[Group]) -> str:
    headings = ["variant", "accuracy %", "seeds", "paper %", "difference", "against full, points"]
    headings += ["macro-F1 %", "paper F1 %", "difference"]
    full = find(variants, variant="full")
    lines = []
    for group in variants:
        variant = str(group.labels["variant"])
        ours = group.stat("test_accuracy")
        theirs = paper.ablation_number(dataset, variant, "accuracy")
        line = [group.name(variant), ours.percent, ours.seeds, paper_text(theirs)]
        line += [difference(ours, theirs), gain_text(group, full)]
        ours = group.stat("test_macro_f1")
        theirs = paper.ablation_number(dataset, variant, "macro_f1")
        lines.append([*line, ours.percent, paper_text(theirs), difference(ours, theirs)])
    return markdown(headings, lines)


EXPERIMENT = Experiment(
    name="ablation",
    title="Ablation",
    question="Removing node condensation (NC), text condensation (TC) or topology reconstruction "
    "(TGR) lowers the accuracy on every data set, node condensation most (the paper's ablation "
    "table).",
    cells=partial(variant_cells_of, VARIANTS),
    render=_render,
)
