"""Hyper-parameters: evidence budgets, chunk-context mix, and the weights of self-expression."""

from collections.abc import Iterator, Sequence
from itertools import product

from dance_flwr.dance.config import DanceConfig
from dance_flwr_studies.engine.cells import Experiment, Label, Row, Section
from dance_flwr_studies.protocols.variants import Point, find, point_cells
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.significance import MARGIN
from dance_flwr_studies.reports.tables import NOTHING, Group, by_label, groups, markdown
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

HOP1, HOP2 = (1, 3, 5), (0, 2, 4)
MIX = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ALPHA, BETA = (4.0, 8.0, 12.0), (3.0, 5.0, 10.0)
# Part -> labels down and across its table.
_AXES = {"budgets": ("hop1", "hop2"), "mix": ("part", "mix"), "alpha-beta": ("alpha", "beta")}
# Part -> labels of the point that has the default settings.
_DEFAULTS: dict[str, dict[str, Label]] = {
    "budgets": {"hop1": DanceConfig.hop1_budget, "hop2": DanceConfig.hop2_budget},
    "mix": {"mix": DanceConfig.mix},
    "alpha-beta": {"alpha": DanceConfig.alpha, "beta": DanceConfig.beta},
}
HOW = (
    "Validation accuracy in percent, by which settings are selected; others are those of the main "
    "table. hop1, hop2: evidence budgets of the two hops; the 2-hop pool holds 4 x "
    "hop2 candidates, at least one. mix: the share of chunk evidence against neighbour context. "
    "alpha, beta: weights of self-expression."
)


def _points() -> list[Point]:
    # Pools in the ratio of the defaults, 8 candidates for a budget of 2, and never empty.
    budgets: list[Point] = [
        (
            {"part": "budgets", "hop1": one, "hop2": two},
            {
                "dance.hop1-budget": one,
                "dance.hop2-budget": two,
                "dance.hop2-pool": max(4 * two, 1),
            },
        )
        for one, two in product(HOP1, HOP2)
    ]
    mixes: list[Point] = [({"part": "mix", "mix": mix}, {"dance.mix": mix}) for mix in MIX]
    weights: list[Point] = [
        ({"part": "alpha-beta", "alpha": a, "beta": b}, {"dance.alpha": a, "dance.beta": b})
        for a, b in product(ALPHA, BETA)
    ]
    return budgets + mixes + weights


def _render(rows: Sequence[Row]) -> Section:
    parts = [HOW]
    for dataset, compared in by_label(groups(rows), "dataset").items():
        parts.append(f"**{dataset}**, {seeds_text(compared)}")
        parts += [_table(part, group) for part, group in by_label(compared, "part").items()]
    return Section(tuple(parts))


def _percent(row: Row) -> float | None:
    # Settings are chosen by validation, and test nodes choose nothing.
    accuracy = row.result["val_accuracy"]
    return None if accuracy is None else 100 * float(accuracy)


def _table(part: str, members: Sequence[Group]) -> str:
    down, across = _AXES[part]
    columns = list(by_label(members, across))
    lines = []
    for value in by_label(members, down):
        row = [find(members, **{down: value, across: at}) for at in columns]
        line = [group.mean_text(_percent, 2) if group else NOTHING for group in row]
        lines.append([f"{value}", *line])
    return markdown([f"{down} \\ {across}", *(f"{at}" for at in columns)], lines)


def _stable(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare every point with that of the defaults, on validation nodes."""
    for part, members in by_label(compared, "part").items():
        default = find(members, **_DEFAULTS[part])
        for group in members:
            point = ", ".join(f"{key} {group.labels[key]}" for key in _DEFAULTS[part])
            what = f"{point} minus the default on {dataset}"
            yield from expect(what, group, default, -MARGIN, "val_accuracy")


EXPERIMENT = Experiment(
    title="Hyper-parameters",
    question="Accuracy is stable over wide ranges of evidence budgets, mix, alpha and beta (the "
    "paper's hyper-parameter figures).",
    cells=lambda request: point_cells(request, _points()),
    render=_render,
    verdict=of_datasets(_stable),
    metrics={"validation accuracy": "val_accuracy"},
)
