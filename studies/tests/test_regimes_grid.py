"""The grid of the study of regimes, by hand."""

from collections import Counter

import pytest
from dance_flwr_studies.engine.cells import Request
from dance_flwr_studies.engine.folder import settings_of
from dance_flwr_studies.protocols.regimes import protocol as regimes
from dance_flwr_studies.protocols.regimes.grid import (
    AS_DANCE_READS,
    CONDENSED_TEXT,
    EVERYWHERE,
    LEVELS,
    OTHERS,
    RANDOM_CORE,
    SEEDS,
    levels_of,
    variants_at,
)

from dance_flwr.methods import get_spec

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


def test_claims_have_ten_seeds_and_the_others_the_first_five(grid):
    others = {RANDOM_CORE, *(variant.name for variant in OTHERS)}
    seeds = {}
    for cell in grid:
        place = cell.labels["regime"], cell.labels["level"], cell.labels["variant"]
        seeds.setdefault((cell.labels["dataset"], *place), []).append(cell.labels["seed"])
    assert all(
        tuple(found)
        == (SEEDS if LEVEL[regime, level].claim and variant not in others else SEEDS[:5])
        for (_, regime, level, variant), found in seeds.items()
    )
    assert tuple(seeds["debian", "text", "0.75", "sfgc"]) == (5, 6, 7, 8, 9)
    claims = {(level.regime, level.level) for level in LEVELS if level.claim}
    assert claims == {
        ("standard", "standard"),
        *(("labels", "5"), ("skew", "Dirichlet 0.1"), ("text", "0.75"), ("edges", "1")),
    }
    assert LEVEL.keys() - claims == {("core", "0.005")}
    assert not set(SEEDS) & set(range(5)), "seeds of the searches"


def test_methods_without_a_ratio_are_not_repeated_over_it():
    names = {variant.method for variant in variants_at(LEVEL["core", "0.005"])}
    assert names == {"dance", "fedavg-rotating"}
    assert all(get_spec(name).card.by_ratio for name in names)
    assert len(variants_at(LEVEL["edges", "1"])) == len(EVERYWHERE)
    assert len(variants_at(LEVEL["text", "0.75"])) == len(EVERYWHERE) + len(OTHERS)
    assert [v.name for v in variants_at(LEVEL["text", "0.75"], ["sfgc"])] == ["sfgc"]
    wide = {(level.regime, level.level) for level in LEVELS if level.others}
    assert wide == {("standard", "standard"), ("text", "0.75")}


def test_debian_is_divided_by_its_teams(grid):
    assert {cell.config.rounds for cell in grid} == {60}
    configs = [cell.config for cell in grid if cell.labels["dataset"] == "debian"]
    assert {(c.partition, c.clients, c.max_client_nodes) for c in configs} == {
        ("by-column", 5, 700)
    }
    assert {(level.regime, level.level) for level in levels_of("/some/where/debian")} == {
        *(("standard", "standard"), ("labels", "5"), ("text", "0.75"), ("edges", "1"))
    }
    assert levels_of("cora") == LEVELS


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
