"""DANCE against each other method, seed by seed: by hand, and in the main table."""

from dataclasses import replace

import pytest
from dance_flwr_studies.engine.cells import Section
from dance_flwr_studies.protocols import main_table
from dance_flwr_studies.reports.significance import Corrected, PairedTest, corrected, paired_test
from dance_flwr_studies.reports.tables import NOTHING, groups, stat_of
from study_support.rows import cells_of, row_of, table_rows


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


def tables(section):
    return [part for part in section.parts if part.startswith("| cora: DANCE minus")]


def test_the_table_says_where_dance_is_behind():
    section = main_table.EXPERIMENT.render(rows_of(ROWS))
    (table,) = tables(section)
    lines = [
        row for name in ("fedavg-full", "gcond") for row in table_rows(Section((table,)), name)
    ]
    # gcond at 0.08: error sqrt(2/3) 0.00577, t = -21.9, df 2, p = 0.00207, twice that with Holm.
    assert lines == [
        ["fedavg-full", "+2.00 [-1.51, +5.51]", "-10.00 ± 0.00 (2 of 3)"],
        ["gcond", "-10.33 [-12.36, -8.31] **behind**", "+0.00 ± 0.00 (2 of 3)"],
    ]


def test_a_variant_of_dance_is_neither_compared_nor_in_the_family():
    plain = rows_of(ROWS)
    (first, *_) = [row for row in plain if row.labels["method"] == "dance"]
    labels = {**first.labels, "variant": "w/o labels"}
    rows = [*plain, *(replace(first, labels={**labels, "seed": seed}) for seed in (0, 1, 2))]
    sections = [main_table.EXPERIMENT.render(found) for found in (plain, rows)]
    plain, with_variant = map(tables, sections)
    assert plain == with_variant and len(plain) == 1
    assert table_rows(sections[1], "dance w/o labels | 0.08")


def test_the_verdict_follows_the_corrected_p():
    """p = 0.03 is no finding among two comparisons, p = 0.02 is one among them."""
    far = Corrected(0.03, 0.9, (0.0, 0.1))
    near = Corrected(0.02, 0.9, (0.0, 0.1))
    first, second = corrected([PairedTest(stat_of((0.05,), 1), one) for one in (far, near)])
    assert (first.p_holm, second.p_holm) == (0.04, 0.04)
    assert first.verdict == second.verdict == "ahead"
    alone, *_ = corrected([PairedTest(stat_of((0.05,), 1), far)] * 3)
    assert alone.p_holm == pytest.approx(0.09) and alone.verdict == "undecided"


@pytest.mark.parametrize(
    ("mean", "p_holm", "p_equivalent", "verdict"),
    [
        (0.03, 0.01, 0.99, "ahead"),
        (-0.03, 0.01, 0.99, "behind"),
        (0.001, 0.6, 0.01, "equivalent within 1 point"),
        (-0.03, 0.06, 0.99, "undecided"),
        (0.002, 0.04, 0.02, "ahead, equivalent within 1 point"),
    ],
)
def test_verdicts(mean, p_holm, p_equivalent, verdict):
    corrected = Corrected(0.001, p_equivalent, (0.0, 0.1))
    assert PairedTest(stat_of((mean,), 1), corrected, p_holm).verdict == verdict


@pytest.mark.parametrize(
    ("differences", "verdict"), [((), NOTHING), ((0.1,), "undecided"), ((0.0, 0.0), "equal")]
)
def test_no_verdict_without_a_test(differences, verdict):
    assert PairedTest(stat_of(differences, 3)).verdict == verdict


def test_the_interval_stands_beside_the_difference():
    near = Corrected(0.001, 0.01, (-0.002, 0.004))
    assert PairedTest(stat_of((0.001,), 1), near).text == "+0.10 [-0.20, +0.40] *equivalent*"
    assert PairedTest(stat_of((), 3)).text == NOTHING


def test_without_dance_there_is_nothing_to_compare():
    rows = rows_of({key: value for key, value in ROWS.items() if key[0] == "gcond"})
    assert not tables(main_table.EXPERIMENT.render(rows))
