"""DANCE against each other method, seed by seed: by hand, and in the main table."""

import pytest
from support.rows import cells_of, row_of, table_rows

from dance_flwr.experiments import main_table
from dance_flwr.experiments.paired import PairedTest, paired_test
from dance_flwr.experiments.tables import NOTHING, groups, stat_of


def rows_of(accuracies):
    """Rows of the main table at two ratios; `accuracies` by (method, ratio), one per seed."""
    cells = cells_of(
        "main-table",
        methods=tuple(dict.fromkeys(name for name, _ in accuracies)),
        ratios=(0.08, 0.04),
    )
    seen = {key: iter(values) for key, values in accuracies.items()}
    return [row_of(cell, next(seen[cell.labels["method"], cell.labels["ratio"]])) for cell in cells]


ROWS = {
    ("dance", 0.08): (0.81, 0.72, 0.93),
    ("dance", 0.04): (0.70, None, 0.80),
    ("fedavg-full", "full"): (0.80, 0.70, 0.90),
    ("gcond", 0.08): (0.91, 0.83, 1.03),
    ("gcond", 0.04): (0.70, 0.60, 0.80),
}


def test_the_difference_is_taken_seed_by_seed():
    """1, 2 and 3 points: t = 2 sqrt(3) with two degrees of freedom, p = 0.0742."""
    dance, _, full, *_ = groups(rows_of(ROWS))
    test = paired_test(dance, full)
    assert test.difference.percent == "2.00 ± 1.00" and test.p == pytest.approx(0.0742, abs=5e-5)
    assert paired_test(full, dance).difference.percent == "-2.00 ± 1.00"


def test_the_table_says_where_dance_loses():
    section = main_table.EXPERIMENT.render(rows_of(ROWS))
    lines = [
        row
        for name in ("fedavg-full", "gcond")
        for row in table_rows(section, name)
        if len(row) == 6
    ]
    assert lines == [
        ["fedavg-full", "0.08", "2.00 ± 1.00", "0.074", "3", "DANCE ahead, within chance"],
        ["fedavg-full", "0.04", "-10.00 ± 0.00", "0.000", "2 of 3", "**DANCE loses**"],
        ["gcond", "0.08", "-10.33 ± 0.58", "0.001", "3", "**DANCE loses**"],
        ["gcond", "0.04", "0.00 ± 0.00", NOTHING, "2 of 3", "equal"],
    ]


@pytest.mark.parametrize(
    ("differences", "p", "verdict"),
    [
        ((), None, NOTHING),
        ((0.1,), None, "DANCE ahead, within chance"),
        ((-0.1, -0.2), 0.2, "**DANCE loses**, within chance"),
        ((0.1, 0.11), 0.03, "DANCE ahead"),
    ],
)
def test_no_verdict_without_a_test(differences, p, verdict):
    assert PairedTest(stat_of(differences, 3), p).verdict == verdict


def test_without_dance_there_is_nothing_to_compare():
    rows = rows_of({key: value for key, value in ROWS.items() if key[0] == "gcond"})
    assert "DANCE against" not in str(main_table.EXPERIMENT.render(rows).parts)
