"""DANCE against another method, seed by seed: difference, corrected t-test, equivalence, verdict.

d_s is DANCE's accuracy minus the other method's for seed s. A seed decides partition, split, first
model and training of both methods, so that most of the variation over seeds cancels in d_s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dance_flwr.study.protocols.variants import by_seed
from dance_flwr.study.reports.significance import LEVEL, Corrected, corrected_test, holm
from dance_flwr.study.reports.tables import NOTHING, Group, Stat, markdown, stat_of

METHOD = "dance"  # compared with every other method
STATISTICS = (
    "p is that of the two-sided paired t-test with the variance correction of Nadeau and Bengio "
    "(2003) for repeated random splits, n_test / n_train = test-ratio / train-ratio; with "
    "labels-per-class, too, where the few labels of two seeds overlap less than those of two full "
    "training sets. The interval of 95 % is of the same test. p (Holm) is p corrected for the "
    "number of comparisons, and the verdict follows it: ahead or behind below 0.05; otherwise "
    "equivalent within 1 point where two one-sided tests (TOST, each at 0.05, not corrected for "
    "the number of comparisons) reject a larger difference; otherwise undecided."
)
HOW = (
    "DANCE minus each other method in points of test accuracy, seed by seed. "
    f"{STATISTICS} The family of Holm's correction is this table. A method without condensation "
    "is compared with its one row at every r."
)
HEADINGS = ("difference, points", "95 % interval", "p", "p (Holm)", "seeds", "verdict")


@dataclass(frozen=True)
class PairedTest:
    """DANCE against one other method on the seeds that both have.

    Attributes
    ----------
    difference : of the accuracies, DANCE's minus the other's
    test : None below two pairs, or where all differences are equal
    p_holm : p corrected for the family of comparisons; None until `family` sets it
    """

    difference: Stat
    test: Corrected | None = None
    p_holm: float | None = None

    @property
    def p(self) -> float | None:
        """The p of the two-sided test, not corrected for the number of comparisons."""
        return None if self.test is None else self.test.p

    @property
    def verdict(self) -> str:
        """Return in words which method is ahead, whether the two are equivalent, or neither."""
        if self.difference.mean is None:
            return NOTHING
        if self.test is None:
            return "undecided" if self.difference.mean else "equal"
        close = self.test.p_equivalent < LEVEL
        if self.p_holm is not None and self.p_holm < LEVEL:
            side = "DANCE ahead" if self.difference.mean > 0 else "**DANCE loses**"
            return f"{side}, equivalent within 1 point" if close else side
        return "equivalent within 1 point" if close else "undecided"

    def is_ahead(self, by: float = 0.0) -> bool:
        """Return whether DANCE is ahead by `by` or more with a corrected p below 0.05."""
        mean = self.difference.mean
        significant = self.p_holm is not None and self.p_holm < LEVEL
        return significant and mean is not None and mean > 0 and mean >= by

    def words(self) -> list[str]:
        """Return the cells of a table under `HEADINGS`, dashes where there is nothing to test."""
        low_high = NOTHING
        if self.test is not None:
            low_high = " to ".join(f"{100 * bound:+.2f}" for bound in self.test.interval)
        ps = [p_text(self.p), p_text(self.p_holm)]
        return [self.difference.percent, low_high, *ps, self.difference.seeds, self.verdict]


def p_text(p: float | None) -> str:
    """Return p with three digits, a dash for None."""
    if p is None:
        return NOTHING
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def paired_test(group: Group, other: Group) -> PairedTest:
    """Compare two groups seed by seed; seeds without a result in either do not count."""
    mine, theirs = (by_seed(side, "test_accuracy") for side in (group, other))
    asked = set.intersection(*({row.labels["seed"] for row in g.rows} for g in (group, other)))
    common = sorted(mine.keys() & theirs.keys(), key=int)
    differences = [mine[seed] - theirs[seed] for seed in common]
    test = corrected_test(differences, _split_ratio(group)) if differences else None
    return PairedTest(stat_of(differences, len(asked)), test)


def family(tests: Sequence[PairedTest]) -> list[PairedTest]:
    """Return the tests with Holm's correction over all of them."""
    adjusted = holm([test.p for test in tests])
    return [replace(test, p_holm=p) for test, p in zip(tests, adjusted, strict=True)]


def comparisons(compared: Sequence[Group]) -> str:
    """Return the table of DANCE against every other method at every ratio; empty without pairs.

    Variants of DANCE are not compared.
    """
    pairs = [
        (group, other)
        for group in compared
        if group.labels["method"] == METHOD and "variant" not in group.labels
        for other in compared
        if other.labels["method"] != METHOD
        and other.labels["ratio"] in (group.labels["ratio"], "full")
    ]
    tests = family([paired_test(group, other) for group, other in pairs])
    lines = [
        [other.name(str(other.labels["method"])), f"{group.labels['ratio']}", *test.words()]
        for (group, other), test in zip(pairs, tests, strict=True)
    ]
    return markdown(["DANCE against", "r of DANCE", *HEADINGS], lines) if lines else ""


def _split_ratio(group: Group) -> float:
    """Return n_test / n_train: the test share over the training share of the labelled nodes."""
    return float(group.setting("test-ratio")) / float(group.setting("train-ratio"))
