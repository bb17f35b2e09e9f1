"""The rows of the study of regimes by cell, and DANCE's comparisons with every other method."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.protocols.regimes.grid import (
    BY_SITE,
    CORE,
    DANCE,
    EVERYWHERE,
    LEVELS,
    OTHERS,
    RANDOM_CORE,
    RIVALS,
    STANDARD,
)
from dance_flwr_studies.reports.significance import PairedTest, corrected, paired_test
from dance_flwr_studies.reports.tables import Group, groups

# The name of a variant shows them.
_VARIANT_KEYS = {key for variant in EVERYWHERE for key in variant.settings}


@dataclass(frozen=True)
class Place:
    """One cell of the study: a data set at a level of a regime."""

    dataset: str
    regime: str
    level: str

    @property
    def name(self) -> str:
        """Regime and level, as tables name it."""
        return STANDARD if self.regime == STANDARD else f"{self.regime} {self.level}"

    @property
    def standard(self) -> "Place":
        """The standard cell of the same data set."""
        return Place(self.dataset, STANDARD, STANDARD)


@dataclass(frozen=True)
class Results:
    """The groups of every cell, and DANCE's comparisons.

    Attributes
    ----------
    groups : cell -> its groups, in the order of the plan
    tests : (cell, rival) -> comparison with DANCE; Holm's correction is over all cells of a rival
    """

    groups: Mapping[Place, Sequence[Group]]
    tests: Mapping[tuple[Place, str], PairedTest]

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that have rows."""
        return tuple(dict.fromkeys(place.dataset for place in self.groups))

    def places(self, dataset: str) -> list[Place]:
        """Return the cells of a data set."""
        return [place for place in self.groups if place.dataset == dataset]

    def rivals(self, place: Place) -> dict[str, PairedTest]:
        """Return the comparisons of a cell by rival."""
        return {rival: test for (at, rival), test in self.tests.items() if at == place}


def results_of(rows: Sequence[Row]) -> Results:
    """Return the groups of every cell, and the comparisons of DANCE with all that ran there."""
    members: dict[Place, list[Row]] = {}
    for row in _in_order(rows):
        place = Place(*(str(row.labels[key]) for key in ("dataset", "regime", "level")))
        members.setdefault(place, []).append(row)
    by_place = {place: groups(part, _VARIANT_KEYS) for place, part in members.items()}
    tests: dict[tuple[Place, str], PairedTest] = {}
    rivals: dict[str, dict[tuple[Place, str], PairedTest]] = {}
    for place, compared in by_place.items():
        if mine := group_at(by_place, place, DANCE):
            for rival, theirs in _rivals_at(by_place, place, compared):
                rivals.setdefault(rival, {})[place, rival] = paired_test(mine, theirs)
    for pairs in rivals.values():
        tests |= corrected(pairs)
    return Results(by_place, tests)


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in the order of the plan; a file has them as its studies shared runs."""
    levels = [(level.regime, level.level) for level in LEVELS]
    variants = [variant.name for variant in (*EVERYWHERE, *OTHERS)]
    names = dict.fromkeys(str(row.labels["dataset"]) for row in rows)
    datasets = sorted(names, key=lambda name: name in BY_SITE)  # the plan's last

    def place(row: Row) -> tuple[int, int, int, int]:
        level, variant = (row.labels["regime"], row.labels["level"]), row.labels["variant"]
        return (
            datasets.index(str(row.labels["dataset"])),
            levels.index(level) if level in levels else len(levels),
            variants.index(str(variant)) if variant in variants else len(variants),
            int(row.labels["seed"]),
        )

    return sorted(rows, key=place)


def group_at(by_place: Mapping[Place, Sequence[Group]], place: Place, variant: str) -> Group | None:
    """Return the group of a variant in a cell, None if it did not run there.

    A method that ignores r has the group of the standard cell at every r.
    """
    where = [place, *([place.standard] if place.regime == CORE else [])]
    matches = (g for p in where for g in by_place.get(p, ()) if g.labels["variant"] == variant)
    return next(matches, None)


def _rivals_at(
    by_place: Mapping[Place, Sequence[Group]], place: Place, compared: Sequence[Group]
) -> Iterator[tuple[str, Group]]:
    ran = [str(group.labels["variant"]) for group in compared]
    for rival in dict.fromkeys((*(variant.name for variant in RIVALS), *ran)):
        if rival in (DANCE, RANDOM_CORE):
            continue
        if group := group_at(by_place, place, rival):
            yield rival, group
