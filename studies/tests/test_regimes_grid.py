"""The grid of the study of regimes, by hand."""

from collections import Counter

import pytest
from dance_flwr_studies.engine.cells import Request
from dance_flwr_studies.engine.folder import settings_of
from dance_flwr_studies.protocols.regimes import protocol as regimes
from dance_flwr_studies.protocols.regimes.grid import (
    AS_DANCE_READS,
    CONDENSED_TEXT,
    LEVELS,
    SEEDS,
)

LEVEL = {(level.regime, level.level): level for level in LEVELS}


@pytest.fixture(scope="module")
def grid():
    """The cells of the whole study."""
    experiment = regimes.EXPERIMENT
    return experiment.cells(Request(experiment.datasets, (), experiment.seeds))


def test_the_number_of_cells_is_that_of_the_plan(grid):
    """Per paper graph: 5 claims x (10 seeds x 5 + 5 seeds), a ratio x 5 seeds x 3, and others.

    By site: 4 claims. The others run in two cells, five seeds each.
    """
    others = 2 * 5 * 5
    paper = 5 * (10 * 5 + 5) + 5 * 3 + others
    assert Counter(cell.labels["dataset"] for cell in grid) == {
        "cora": paper,
        "citeseer": paper,
        "debian": 4 * (10 * 5 + 5) + others,
    }


def test_a_level_differs_from_the_standard_cell_in_its_own_settings(grid):
    def key(cell):
        return tuple(cell.labels[name] for name in ("dataset", "variant"))

    first = [cell for cell in grid if cell.labels["seed"] == SEEDS[0]]
    standard = {key(c): settings_of(c.config) for c in first if c.labels["regime"] == "standard"}
    for cell in first:
        level = LEVEL[cell.labels["regime"], cell.labels["level"]]
        mine, base = settings_of(cell.config), standard[key(cell)]
        changed = {name: value for name, value in mine.items() if base[name] != value}
        # dirichlet-alpha 1 is the default, which louvain ignores.
        assert changed.items() <= level.settings.items(), cell.labels
        assert mine.items() >= level.settings.items()
        assert bool(changed) == (level.regime != "standard")


READING = ("text-pooling", "edge-gates", "class-prior")


@pytest.mark.parametrize(
    ("variant", "reading"),
    [
        ("fedavg-full", ("attention", "none", "none")),
        (CONDENSED_TEXT, ("agreement", "none", "none")),
        (AS_DANCE_READS, ("probe", "probe", "labels")),
        ("dance", ("probe", "probe", "labels")),
        ("dance w/o NC", ("probe", "probe", "labels")),
    ],
)
def test_what_each_variant_reads_is_that_of_its_name(grid, variant, reading):
    found = {
        tuple(settings_of(cell.config)[key] for key in READING)
        for cell in grid
        if cell.labels["variant"] == variant and cell.labels["seed"] == SEEDS[0]
    }
    assert found == {reading}
