"""Personal models: whether a client of DANCE is better off than by any other way, in each regime.

The family of comparisons is fixed here, before any run: DANCE with personal models against each of
`RIVALS` in each cell, in accuracy and in macro-F1 where the rival has one, with Holm's correction
over all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from dance_flwr.config.options import Value
from dance_flwr.terminal import size
from dance_flwr_studies.engine.cells import (
    Cell,
    Experiment,
    Request,
    Row,
    Section,
    dataset_name,
    tuned_values,
)
from dance_flwr_studies.protocols.regimes.grid import BY_SITE, RATIO
from dance_flwr_studies.reports import significance
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.significance import MARGIN, PairedTest, corrected, paired_test
from dance_flwr_studies.reports.tables import NOTHING, Group, groups, markdown
from dance_flwr_studies.reports.verdicts import Expected, expect, verdict

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
DANCE, FULL = "dance, personal", "fedavg-full"
# Name -> (method, settings). What reads as DANCE reads is what its own text and edges are worth.
VARIANTS: dict[str, tuple[str, dict[str, Value]]] = {
    DANCE: ("dance", {"personal": "auto"}),
    "fedavg-full, personal": (FULL, READ_ALIKE | {"personal": "mix"}),
    "fedavg-full, tuned": (FULL, READ_ALIKE | {"personal": "tune"}),
    "fedper": ("fedper", READ_ALIKE),
    "ditto": ("ditto", READ_ALIKE),
    "local-only": ("local-only", READ_ALIKE),
    "fedgta": ("fedgta", READ_ALIKE),
}
# The global models of the first two, which one run gives with the personal ones.
FULL_GLOBAL = "fedavg-full, global"
GLOBAL = {"dance, global": DANCE, FULL_GLOBAL: "fedavg-full, personal"}
RIVALS = (*GLOBAL, *list(VARIANTS)[1:])
ACCURACY, F1 = "accuracy", "macro-F1"
Family = Mapping[tuple[str, str, str], PairedTest]  # (cell, rival, metric) -> test
_COSTS = ("seconds_personal", "bytes_personal")
HOW = (
    "Test accuracy/macro-F1 in %, means over seeds. *personal*: a client's own model mixed with "
    "the global one; *global*: that one alone; *tuned*: it trained on at the client. All read as "
    "the federation votes. Differences are those of *dance, personal*, as in the main table, "
    "Holm's correction over all of them. "
    f"{significance.POWER}"
)


def _cells(request: Request) -> list[Cell]:
    return [
        Cell(
            {"dataset": dataset_name(dataset), "method": method, "variant": variant}
            | {"cell": name, "seed": seed},
            request.config(dataset, method, seed, settings),
        )
        for dataset in request.datasets
        for name, (varied, by_site) in CELLS.items()
        if by_site or dataset_name(dataset) not in BY_SITE
        for variant, (method, changes) in VARIANTS.items()
        for settings in [
            (RATIO if method == "dance" else {})
            # They train FedAvg's network, so that its searched settings are theirs.
            | (tuned_values(dataset, FULL) if method in ("fedper", "ditto") else {})
            | BY_SITE.get(dataset_name(dataset), {})
            | varied
            | changes
        ]
        for seed in request.seeds
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts: list[str] = [HOW]
    for dataset, mine in _by(rows, "dataset").items():
        by_cell = {cell: _groups(part) for cell, part in _by(mine, "cell").items()}
        family = _compared(by_cell)
        heading = f"**{dataset}**, {seeds_text(groups(mine))}"
        parts += [heading, _scores(by_cell), _nearest_rivals(family), _verdict(family)]
    return Section(tuple(parts))


def _by(rows: Sequence[Row], label: str) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(str(row.labels[label]), []).append(row)
    return parts


def _groups(rows: Sequence[Row]) -> dict[str, Group]:
    by_variant = {str(group.labels["variant"]): group for group in groups(rows, {"personal"})}
    shared = {name: _global(by_variant[of]) for name, of in GLOBAL.items() if of in by_variant}
    return {**by_variant, **shared}


def _global(group: Group) -> Group:
    results = [
        row.result
        and {**row.result, "test_accuracy": row.result["test_accuracy_by_view"]["global"]}
        for row in group.rows
    ]
    rows = [replace(row, result=result) for row, result in zip(group.rows, results, strict=True)]
    return Group(group.labels, rows, group.note)


def _compared(by_cell: Mapping[str, Mapping[str, Group]]) -> Family:
    return corrected(
        {
            (cell, rival, metric): paired_test(parts[DANCE], parts[rival], key)
            for cell, parts in by_cell.items()
            for rival in RIVALS
            for metric, key in ((ACCURACY, "test_accuracy"), (F1, "test_macro_f1"))
            if DANCE in parts and rival in parts and (metric == ACCURACY or rival not in GLOBAL)
        }
    )


def _scores(by_cell: Mapping[str, Mapping[str, Group]]) -> str:
    lines = []
    for name in (DANCE, *RIVALS):
        parts = [groups_[name] for groups_ in by_cell.values() if name in groups_]
        scores = [_score(groups_.get(name), name) for groups_ in by_cell.values()]
        cost = NOTHING if name in GLOBAL else _cost(parts)
        lines += [[name, *scores, cost]] if parts else []
    return markdown(["%", *by_cell, "a client pays"], lines)


def _score(group: Group | None, name: str) -> str:
    if group is None:
        return NOTHING
    metrics = ("test_accuracy",) if name in GLOBAL else ("test_accuracy", "test_macro_f1")
    means = [group.stat(metric).mean for metric in metrics]
    return "/".join(NOTHING if mean is None else f"{100 * mean:.2f}" for mean in means)


def _cost(parts: Iterable[Group]) -> str:
    rows = [row.result for group in parts for row in group.rows if row.result]
    paid = [row for row in rows if "seconds_personal" in row]
    if not paid:
        return NOTHING
    seconds, moved = (fmean(row[key] for row in paid) for key in _COSTS)
    return f"{seconds:.1f} s, {size(round(moved))}"


def _nearest_rivals(family: Family) -> str:
    """Return a line per cell with the best other method in either metric: below 0, it is first."""
    lines = []
    for cell in dict.fromkeys(cell for cell, *_ in family):
        line = [cell]
        for metric in (ACCURACY, F1):
            known = [
                (test.difference.mean, rival, test.text)
                for (at, rival, of), test in family.items()
                if (at, of) == (cell, metric) and test.difference.mean is not None
            ]
            _, nearest, text = min(known, key=lambda each: each[0], default=(0.0, "", ""))
            line.append(f"{nearest}: {text}" if known else NOTHING)
        lines.append(line)
    return markdown(["DANCE minus the best other", ACCURACY, F1], lines)


def _verdict(family: Family) -> str:
    """Say where DANCE is ahead or behind, and whether it is a point ahead of the global models."""
    sides: dict[str, list[str]] = {"ahead": [], "behind": []}
    for (cell, rival, metric), test in family.items():
        side = test.verdict.partition(",")[0]
        sides.get(side, []).append(f"{rival} ({cell}, {metric})")
    behind = f": {'; '.join(sides['behind'])}" if sides["behind"] else ""
    gains: dict[str, dict[str, float]] = {cell: {} for cell, *_ in family}
    for (cell, rival, _), test in family.items():
        if rival in GLOBAL:
            gains[cell][rival] = test.difference.mean or 0.0
    fedavg = sum(gain.get(FULL_GLOBAL, 0.0) >= MARGIN for gain in gains.values())
    both = sum(min(gain.values(), default=0.0) >= MARGIN for gain in gains.values())
    return (
        f"Of {len(family)} comparisons DANCE is ahead in {len(sides['ahead'])} and behind in "
        f"{len(sides['behind'])}{behind}. It is a point or more ahead of FedAvg's global model in "
        f"{fedavg} of {len(gains)} cells, of its own too in {both}; the goal was half."
    )


def _verdict_of_claim(rows: Sequence[Row]) -> str:
    """Compare with training alone and with the global models in every cell: no point behind."""
    expected: list[Expected] = []
    for dataset, mine in _by(rows, "dataset").items():
        for cell, part in _by(mine, "cell").items():
            variants = _groups(part)
            for rival in (*GLOBAL, "local-only"):
                what = f"{DANCE} minus {rival} on {dataset}, {cell}"
                expected += expect(what, variants.get(DANCE), variants.get(rival), -MARGIN)
    return verdict(expected)


EXPERIMENT = Experiment(
    name="personal",
    title="Personal models",
    question="No client is worse off than alone or with the global model: not a claim of the "
    "paper.",
    cells=_cells,
    render=_render,
    verdict=_verdict_of_claim,
    datasets=("cora", "citeseer", *BY_SITE),
)
