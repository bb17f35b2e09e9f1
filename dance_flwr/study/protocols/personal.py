"""Personal models: whether a client of DANCE is better off than by any other way, in each regime.

The family of comparisons is fixed here, before any run: DANCE with personal models against each of
`RIVALS` in each cell, in accuracy and in macro-F1 where the rival has one, with Holm's correction
over all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dance_flwr.config.options import Value
from dance_flwr.study.engine.cells import (
    Cell,
    Experiment,
    Label,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr.study.protocols.regimes.grid import BY_SITE, RATIO
from dance_flwr.study.reports import significance
from dance_flwr.study.reports.significance import PairedTest, corrected, paired_test
from dance_flwr.study.reports.tables import NOTHING, Group, groups, markdown

READ_ALIKE: dict[str, Value] = {"text-pooling": "probe", "edge-gates": "probe"}
# Cell -> (settings, whether it also runs on data sets of real sites).
CELLS: dict[str, tuple[dict[str, Value], bool]] = {
    "standard": ({}, True),
    "foreign text 0.75": ({"foreign-text-ratio": 0.75}, True),
    "random edges 1": ({"random-edge-ratio": 1.0}, True),
    "Dirichlet 0.1": ({"partition": "label-dirichlet", "dirichlet-alpha": 0.1}, False),
    "5 labels a class": ({"labels-per-class": 5}, True),
    "20 clients": ({"clients": 20}, False),
}
DANCE = "dance, personal"
# Name -> (method, settings). What reads as DANCE reads is what its own text and edges are worth.
VARIANTS: dict[str, tuple[str, dict[str, Value]]] = {
    DANCE: ("dance", {"personal": "mix"}),
    "fedavg-full, personal": ("fedavg-full", READ_ALIKE | {"personal": "mix"}),
    "local-only": ("local-only", READ_ALIKE),
    "fedgta": ("fedgta", READ_ALIKE),
}
# The global models of the first two, which one run gives with the personal ones.
GLOBAL = {"dance, global": DANCE, "fedavg-full, global": "fedavg-full, personal"}
RIVALS = ("dance, global", "fedavg-full, global", *list(VARIANTS)[1:])
ACCURACY, F1 = "accuracy", "macro-F1"
HOW = (
    "Test accuracy / macro-F1 in %, means over seeds. *personal*: a client's own model mixed with "
    "the global one; *global*: that one alone. All read as the federation votes. Differences as in "
    f"the main table, Holm's correction over all of them. {significance.POWER}"
)


@dataclass(frozen=True)
class _Comparison:
    cell: str
    rival: str
    metric: str
    test: PairedTest


def _cells(request: Request) -> list[Cell]:
    return [
        Cell({**labels, "seed": seed}, request.config(dataset, method, seed, settings))
        for dataset in request.datasets
        for name, (varied, by_site) in CELLS.items()
        if by_site or dataset_name(dataset) not in BY_SITE
        for variant, (method, own) in VARIANTS.items()
        for labels in [_labels(dataset, name, variant, method)]
        for settings in [
            {**(RATIO if method == "dance" else {}), **BY_SITE.get(dataset_name(dataset), {})}
            | varied
            | own
        ]
        for seed in request.seeds
    ]


def _labels(dataset: str, cell: str, variant: str, method: str) -> dict[str, Label]:
    named: dict[str, Label] = {"dataset": dataset_name(dataset), "method": method}
    return named | {"variant": variant, "cell": cell}


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str] = [HOW]
    for dataset in dict.fromkeys(str(row.labels["dataset"]) for row in rows):
        mine = [row for row in rows if row.labels["dataset"] == dataset]
        by_cell = {
            cell: _groups([row for row in mine if row.labels["cell"] == cell])
            for cell in dict.fromkeys(str(row.labels["cell"]) for row in mine)
        }
        parts += [f"**{dataset}**", _scores(by_cell), _distances(_compared(by_cell))]
    return Section(tuple(parts))


def _groups(rows: Sequence[Row]) -> dict[str, Group]:
    """Return the groups of a cell by variant, the global models of personal runs among them."""
    found = {str(group.labels["variant"]): group for group in groups(rows, {"personal"})}
    shared = {name: _global(found[of]) for name, of in GLOBAL.items() if of in found}
    return {**found, **shared}


def _global(group: Group) -> Group:
    """Return the rows of personal models with the accuracy of their global ones."""
    rows = [
        Row(**{**vars(row), "result": {**row.result, "test_accuracy": _of_view(row, "global")}})
        if row.result
        else row
        for row in group.rows
    ]
    return Group(group.labels, rows, group.note)


def _of_view(row: Row, view: str) -> float:
    return float(row.result["test_accuracy_by_view"][view])


def _compared(by_cell: Mapping[str, Mapping[str, Group]]) -> list[_Comparison]:
    """Return the whole family of a data set, corrected together."""
    family = [
        _Comparison(cell, rival, metric, paired_test(found[DANCE], found[rival], key))
        for cell, found in by_cell.items()
        for rival in RIVALS
        for metric, key in ((ACCURACY, "test_accuracy"), (F1, "test_macro_f1"))
        if DANCE in found and rival in found and (metric == ACCURACY or rival not in GLOBAL)
    ]
    tests = corrected([each.test for each in family])
    return [
        _Comparison(each.cell, each.rival, each.metric, test)
        for each, test in zip(family, tests, strict=True)
    ]


def _scores(by_cell: Mapping[str, Mapping[str, Group]]) -> str:
    """Return accuracy and macro-F1 with a line per variant and a column per cell."""
    names = (DANCE, *RIVALS)
    lines = [
        [name, *(_score(found.get(name), name not in GLOBAL) for found in by_cell.values())]
        for name in names
    ]
    seeds = [str(max(len(group.rows) for group in found.values())) for found in by_cell.values()]
    return markdown(["%", *by_cell], [*lines, ["seeds", *seeds]])


def _score(group: Group | None, has_f1: bool) -> str:
    if group is None:
        return NOTHING
    metrics = ("test_accuracy", "test_macro_f1") if has_f1 else ("test_accuracy",)
    means = [group.stat(metric).mean for metric in metrics]
    return " / ".join(NOTHING if mean is None else f"{100 * mean:.2f}" for mean in means)


def _distances(family: Sequence[_Comparison]) -> str:
    """Return, per cell and metric, the rival that is nearest to DANCE or most ahead of it."""
    lines = []
    for cell in dict.fromkeys(each.cell for each in family):
        line = [cell]
        for metric in (ACCURACY, F1):
            here = [c for c in family if (c.cell, c.metric) == (cell, metric)]
            known = [c for c in here if c.test.difference.mean is not None]
            best = min(known, key=lambda c: c.test.difference.mean or 0.0, default=None)
            sides = [c.test.verdict.partition(",")[0] for c in known]
            counts = f"{sides.count('ahead')} / {sides.count('behind')}"
            line += [best.rival, best.test.text, counts] if best else [NOTHING] * 3
        lines.append(line)
    columns = ("nearest", "points", "ahead / behind")
    return markdown(["DANCE", *columns, f"{F1}: nearest", *columns[1:]], lines)


EXPERIMENT = Experiment(
    name="personal",
    title="Personal models",
    question="No client is worse off than alone or with the global model: not a claim of the "
    "paper.",
    cells=_cells,
    render=_render,
    datasets=("cora", "citeseer", *BY_SITE),
)
