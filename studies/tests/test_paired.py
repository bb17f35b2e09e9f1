"""DANCE against each other method, seed by seed: by hand, and in the main table."""

from dataclasses import replace

import pytest
from dance_flwr_studies.reports.significance import Corrected, PairedTest, corrected, paired_test
from dance_flwr_studies.reports.tables import groups, stat_of
from study_support.rows import cells_of, row_of


def rows_of(accuracies):
    """Rows of the main table at two ratios; `accuracies` by (method, ratio), one per seed."""
    cells = cells_of(
        "main-table",
        methods=tuple(dict.fromkeys(name for name, _ in accuracies)),
        ratios=(0.08, 0.04),
    )
    seen = {key: iter(values) for key, values in accuracies.items()}
    return [
        row_of(cell, next(seen[cell.labels["method"], cell.labels["ratio"]]))
        for cell in cells
        if "variant" not in cell.labels
    ]


ROWS = {
    ("dance", 0.08): (0.81, 0.72, 0.93),
    ("dance", 0.04): (0.70, None, 0.80),
    ("fedavg-full", "full"): (0.80, 0.70, 0.90),
    ("gcond", 0.08): (0.91, 0.83, 1.03),
    ("gcond", 0.04): (0.70, 0.60, 0.80),
}


def test_the_difference_is_taken_seed_by_seed():
    """1, 2 and 3 points, test over training share 1/3: t = sqrt(6), p = 1 - sqrt(3) / 2."""
    dance, _, full, *_ = groups(rows_of(ROWS))
    test = paired_test(dance, full)
    assert test.difference.percent == "2.00 ± 1.00" and test.test.p == pytest.approx(
        0.1340, abs=5e-5
    )
    assert paired_test(full, dance).difference.percent == "-2.00 ± 1.00"


def test_the_seeds_are_those_that_were_asked_of_both():
    dance, _, full, *_ = groups(rows_of(ROWS))
    fewer = replace(full, rows=full.rows[:2])
    assert paired_test(dance, fewer).difference.seeds == "2"
    unfinished = replace(full, rows=[*full.rows[:2], replace(full.rows[2], result={})])
    assert paired_test(dance, unfinished).difference.seeds == "2 of 3"


def test_the_correction_takes_the_split_of_the_rows():
    """60/20/20 gives 1/3; 20/20/60 gives 3: t = 0.02 / sqrt((1/3 + 3) 1e-4) = sqrt(1.2)."""
    rows = [
        replace(row, config={**row.config, "train-ratio": 0.2, "test-ratio": 0.6})
        for row in rows_of(ROWS)
    ]
    dance, _, full, *_ = groups(rows)
    assert paired_test(dance, full).test.p == pytest.approx(1 - (1.2 / 3.2) ** 0.5)


def test_the_verdict_follows_the_corrected_p():
    """p = 0.03 is no finding among two comparisons, p = 0.02 is one among them."""
    far = Corrected(0.03, 0.9, (0.0, 0.1))
    near = Corrected(0.02, 0.9, (0.0, 0.1))
    tests = {name: PairedTest(stat_of((0.05,), 1), name) for name in (far, near)}
    first, second = corrected(tests).values()
    assert (first.p_holm, second.p_holm) == (0.04, 0.04)
    assert first.verdict == second.verdict == "**ahead**"
    tests = dict.fromkeys(range(3), PairedTest(stat_of((0.05,), 1), far))
    alone, *_ = corrected(tests).values()
    assert alone.p_holm == pytest.approx(0.09) and alone.verdict == ""


@pytest.mark.parametrize(
    ("mean", "p_holm", "p_equivalent", "verdict"),
    [
        (0.03, 0.01, 0.99, "**ahead**"),
        (-0.03, 0.01, 0.99, "**behind**"),
        (0.001, 0.6, 0.01, "*equivalent*"),
        (-0.03, 0.06, 0.99, ""),
        (0.002, 0.04, 0.02, "**ahead**"),
    ],
)
def test_verdicts(mean, p_holm, p_equivalent, verdict):
    corrected = Corrected(0.001, p_equivalent, (0.0, 0.1))
    assert PairedTest(stat_of((mean,), 1), corrected, p_holm).verdict == verdict
