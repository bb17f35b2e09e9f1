"""The study of regimes: its families, and what it says of made-up rows."""

from dataclasses import replace
from functools import cache

from dance_flwr_studies.engine.cells import Section
from dance_flwr_studies.protocols.regimes import protocol as regimes
from dance_flwr_studies.protocols.regimes.protocol import COSTS
from dance_flwr_studies.protocols.regimes.results import results_of
from dance_flwr_studies.reports.significance import holm
from study_support.rows import cells_of, row_of, table_rows

EQUAL = (0.70, 0.71, 0.72)  # in the order of the seeds
LEVELS_SHOWN = (("standard", "standard"), ("text", "0.75"), ("core", "0.005"))


def rows_with(accuracies, missing=()):
    """Rows of Cora at three levels, seeds 0 to 2.

    `accuracies` by (variant, level), one per seed; those in `missing` have no result.
    """
    made = []
    for row in equal_rows():
        key = row.labels["variant"], row.labels["level"]
        accuracy = accuracies.get(key, EQUAL)[row.labels["seed"]]
        result = {} if key in missing else row.result | {"test_accuracy": accuracy}
        made.append(replace(row, result=result))
    return made


@cache
def equal_rows():
    """Rows in which every method has the accuracies `EQUAL`; the settings are made once."""
    found = cells_of("regimes", datasets=("cora",))
    return [
        row_of(cell, EQUAL[cell.labels["seed"]])
        for cell in found
        if (cell.labels["regime"], cell.labels["level"]) in LEVELS_SHOWN
    ]


AHEAD = {("dance", "0.75"): (0.80, 0.811, 0.82)}


def comparisons(section):
    """The tests of DANCE in the tables of comparisons: (rival, level) -> text."""
    tables = [p for p in section.parts if isinstance(p, str) and p.startswith("| DANCE minus |")]
    shown = {}
    for table in tables:
        (_, *levels), _, *lines = (line.strip("| ").split(" | ") for line in table.splitlines())
        shown |= {
            (name, at): c for name, *cells in lines for at, c in zip(levels, cells, strict=True)
        }
    return shown


def test_dance_is_ahead_where_it_is():
    section = regimes.EXPERIMENT.render(rows_with(AHEAD))
    shown = comparisons(section)
    # 10, 10.1 and 10 points against equals; three cells per rival, two of them without variance.
    # Error sqrt((1/3 + 1/3) / 3) 0.1, 0.975 quantile of t with two degrees of freedom 4.302653.
    assert shown["fedavg-rotating", "text 0.75"] == "+10.03 [+9.83, +10.24] **ahead**"
    assert {rival for (rival, at), text in shown.items() if "ahead" in text and "text" in at} == {
        rival for rival, at in shown if at == "text 0.75"
    }
    assert not any("ahead" in text for (_, at), text in shown.items() if "text" not in at)


def test_dance_is_ahead_nowhere_where_it_is_not():
    assert not any(
        "ahead" in t for t in comparisons(regimes.EXPERIMENT.render(rows_with({}))).values()
    )
    behind = {("dance", "standard"): (0.60, 0.611, 0.62)}
    shown = comparisons(regimes.EXPERIMENT.render(rows_with(behind)))
    assert shown["fedavg-rotating", "standard"].endswith("**behind**")


def test_a_family_is_all_cells_of_a_rival():
    noisy = {
        ("dance", "0.75"): (0.80, 0.83, 0.82),
        ("dance", "standard"): (0.72, 0.74, 0.73),
        ("dance", "0.005"): (0.70, 0.72, 0.75),
    }
    results = results_of(rows_with(noisy))
    by_rival = {}
    for (_, rival), test in results.tests.items():
        by_rival.setdefault(rival, []).append(test)
    assert len(by_rival["fedavg-full"]) == 3 and len(by_rival["sfgc"]) == 2
    for tests in by_rival.values():
        assert [test.p_holm for test in tests] == holm(
            [test.test and test.test.p for test in tests]
        )
        assert max(test.p_holm for test in tests) > min(test.test.p for test in tests)


def test_a_method_without_a_ratio_has_its_standard_row_at_every_r():
    accuracies = {("fedavg-full", "standard"): (0.5, 0.5, 0.5)}
    section = regimes.EXPERIMENT.render(rows_with(accuracies))
    (table,) = [p for p in section.parts if str(p).startswith("| accuracy % |")]
    assert table.startswith("| accuracy % | standard | text 0.75 | core 0.005 |")
    shown = table_rows(Section((table,)), "fedavg-full")[0][1:]
    assert shown == ["50.00 ± 0.00", "71.00 ± 1.00", "50.00 ± 0.00"]
    assert table_rows(Section((table,)), "seeds")[0][1:] == ["3"] * 3 and "sfgc" not in table
    assert comparisons(section)["fedavg-full", "core 0.005"].startswith("+21.00")


def test_costs_by_hand():
    """Of the made-up run: 4 nodes x 90 tokens, 1000 tokens in all, 2000 bytes x 8 rounds, 60 s."""
    rows = {row.labels["variant"]: row for row in rows_with({})}
    assert [cost(rows["dance"]) for cost in COSTS.values()] == [0.36, 0.016, 50.0]
    assert [cost(rows["fedavg-full"]) for cost in COSTS.values()] == [1.0, 0.016, 50.0]
