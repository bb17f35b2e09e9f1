"""The verdict of given rows on a claim, from the differences that the claim expects.

Every difference is tested seed by seed, as in the tables of comparisons. One that is significantly
on the other side of its bound, with Holm's correction over all of them, refutes a claim; only all
of them together, each significant, support it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.reports.significance import LEVEL, PairedTest, corrected, paired_test
from dance_flwr_studies.reports.tables import Group, Metric, by_label, groups

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
UNTESTED = "not tested by these rows"


@dataclass(frozen=True)
class Expected:
    """A difference that a claim expects to be above a bound.

    Attributes
    ----------
    what : names the two sides
    excess : the test of the difference minus the bound
    unit, scale : of the printed difference, and its factor
    """

    what: str
    excess: PairedTest
    bound: float = 0.0
    unit: str = "points"
    scale: float = 100.0

    @property
    def is_shown(self) -> bool:
        """Whether the difference is significantly above the bound, without correction."""
        mean, test = self.excess.difference.mean, self.excess.test
        return mean is not None and mean > 0 and test is not None and test.p < LEVEL

    @property
    def is_refuted(self) -> bool:
        """Whether the difference is significantly below the bound, corrected."""
        return self.excess.is_significant and (self.excess.difference.mean or 0.0) < 0

    @property
    def text(self) -> str:
        """Return the difference with its interval, and the bound."""
        mean, test = self.excess.difference.mean or 0.0, self.excess.test
        values = [mean, *(test.interval if test else ())]
        first, *interval = (f"{self.scale * (value + self.bound):+.2f}" for value in values)
        brackets = f" [{', '.join(interval)}]" if interval else ""
        bound = f"{self.scale * self.bound:g}"
        return f"{self.what}: {first}{brackets} {self.unit}, expected above {bound}"


def expect(
    what: str,
    group: Group | None,
    other: Group | None,
    bound: float = 0.0,
    metric: Metric = "test_accuracy",
    unit: tuple[str, float] = ("points", 100.0),
) -> Iterator[Expected]:
    """Yield the expected difference metric(group) - metric(other), if they share seeds."""
    if group is not None and other is not None and group is not other:
        test = paired_test(group, other, metric, bound)
        if test.difference.mean is not None:
            yield Expected(what, test, bound, *unit)


def of_datasets(
    differences: Callable[[str, Sequence[Group]], Iterable[Expected]], stated: Collection[str] = ()
) -> Callable[[Sequence[Row]], str]:
    """Return the verdict of rows on a claim, from the differences that it expects in a data set.

    Parameters
    ----------
    differences : (data set, its groups) -> what is expected
    stated : as of `groups`
    """

    def of_rows(rows: Sequence[Row]) -> str:
        parts = by_label(groups(rows, stated), "dataset").items()
        return verdict(each for dataset, part in parts for each in differences(str(dataset), part))

    return of_rows


def verdict(expected: Iterable[Expected]) -> str:
    """Return in Markdown whether a claim holds, and the difference that speaks most against it."""
    known = list(expected)
    if not known:
        return f"**{UNTESTED}**."
    tests = corrected({place: each.excess for place, each in enumerate(known)})
    known = [replace(each, excess=tests[place]) for place, each in enumerate(known)]
    refuted = [each for each in known if each.is_refuted]
    shown = sum(each.is_shown for each in known)
    word = FAILS if refuted else HOLDS if shown == len(known) else UNDECIDED
    # In units of the bound's scale: a point, a second, a round.
    worst = min(refuted or known, key=lambda each: each.scale * (each.excess.difference.mean or 0))
    if len(known) == 1:
        return f"**{word}**: {worst.text}."
    return (
        f"**{word}**: of {len(known)} differences that the claim expects, {shown} significant and "
        f"{len(refuted)} significantly the other way. The lowest: {worst.text}."
    )
