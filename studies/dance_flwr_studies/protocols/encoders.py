"""Encoders: what another sentence encoder is worth to each method, and what it costs.

`--set encoder=FOLDER` chooses it; rows of several invocations stand side by side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig
from dance_flwr_studies.engine.cells import Cell, Experiment, Request, Row, Section, dataset_name
from dance_flwr_studies.protocols.variants import BY_SITE, RATIO, REFERENCE, find
from dance_flwr_studies.reports.sections import accuracy, mean_of, named, side_by_side
from dance_flwr_studies.reports.significance import MARGIN, comparison_table, corrected, paired_test
from dance_flwr_studies.reports.tables import Group, groups, value_of
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

_STATED = ("encoder", "personal")  # settings that the labels show
# Name -> (method, settings).
VARIANTS: dict[str, tuple[str, Mapping[str, Value]]] = {
    "dance": ("dance", RATIO),
    "dance, personal": ("dance", {**RATIO, "personal": "auto"}),
    REFERENCE: (REFERENCE, {}),
    "local-only": ("local-only", {}),
}
HOW = (
    "Settings of the main table, searched with the default encoder. *seconds*: of one core, "
    "without encoding. *MB up*: of a client in the run."
)


def _cells(request: Request) -> list[Cell]:
    encoder = Path(str(request.overrides.get("encoder", RunConfig().encoder))).name
    cells: list[Cell] = []
    for dataset in request.datasets:
        site = BY_SITE.get(dataset_name(dataset), {})
        for variant, (method, settings) in VARIANTS.items():
            labels = {"encoder": encoder, "variant": variant}
            cells += request.cells(dataset, method, labels, {**site, **settings})
    return cells


def _render(rows: Sequence[Row]) -> Section:
    keys = {"encoder": lambda group: str(group.labels["encoder"]), "variant": named("variant")}
    costs = {"seconds": mean_of(seconds, 0), "MB up": mean_of(megabytes_up, 1)}
    table = side_by_side(HOW, keys, {"accuracy %": accuracy, **costs}, stated=_STATED)
    return Section((*table(rows).parts, *_comparisons(rows)))


def _comparisons(rows: Sequence[Row]) -> list[str]:
    found = groups(rows, _STATED)
    names = dict.fromkeys(str(group.labels["encoder"]) for group in found)
    tables = []
    for encoder in (name for name in names if name != RunConfig().encoder):
        tests = {
            (str(mine.labels["variant"]), str(mine.labels["dataset"])): paired_test(mine, base)
            for mine in found
            if mine.labels["encoder"] == encoder
            and (base := find(found, **{**mine.labels, "encoder": RunConfig().encoder}))
        }
        # Over the whole table, as each of its cells is a chance to be wrong.
        corner = f"{encoder} minus {RunConfig().encoder}"
        tables.append(comparison_table(corner, corrected(tests)))
    return tables


def _better(dataset: str, found: Sequence[Group]) -> Iterator[Expected]:
    """Compare another encoder with the default, and DANCE's gain with that of the reference."""
    gains: dict[tuple[str, str], Group] = {}
    for mine in found:
        encoder, variant = (str(mine.labels[key]) for key in ("encoder", "variant"))
        base = find(found, **{**mine.labels, "encoder": RunConfig().encoder})
        if base is not None and base is not mine:
            yield from expect(f"{encoder} minus the default, {variant} on {dataset}", mine, base)
            gains[encoder, variant] = _gain(mine, base)
    for (encoder, variant), gain in gains.items():
        if variant == "dance":
            what = f"gain of DANCE by {encoder} minus that of {REFERENCE} on {dataset}"
            yield from expect(what, gain, gains.get((encoder, REFERENCE)), -MARGIN)


def megabytes_up(row: Row) -> float:
    """Return megabytes that a client uploads in the whole run."""
    return float(row.result["bytes_up"] * row.result["rounds"] / 1e6)


def seconds(row: Row) -> float:
    """Return the processor seconds of the whole run, all clients and the server."""
    return float(row.result["facts"]["cpu_seconds"])


def _gain(mine: Group, base: Group) -> Group:
    """Return rows whose accuracy is what an encoder gains over the default, seed by seed."""
    theirs = base.by_seed("test_accuracy")
    rows = []
    for row in mine.rows:
        at = theirs.get(row.labels["seed"])
        own = value_of(row, "test_accuracy")
        gained = {} if own is None or at is None else {"test_accuracy": own - at}
        rows.append(replace(row, result=gained))
    return Group(mine.labels, rows, mine.note)


EXPERIMENT = Experiment(
    title="Encoders",
    question="A stronger sentence encoder helps, and DANCE as much as the others: not a claim of "
    "the paper.",
    cells=_cells,
    render=_render,
    verdict=of_datasets(_better, _STATED),
    seeds=tuple(range(5, 15)),
)
