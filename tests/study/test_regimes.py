"""The study of regimes: its families, and what it says of made-up rows."""

from dataclasses import replace
from functools import cache

from support.rows import cells_of, row_of, table_rows

from dance_flwr.study.engine.cells import Picture, Section
from dance_flwr.study.protocols.regimes import protocol as regimes
from dance_flwr.study.protocols.regimes.costs import COSTS
from dance_flwr.study.protocols.regimes.grid import ABLATIONS, EVERYWHERE, ROTATING
from dance_flwr.study.protocols.regimes.results import Place, better_rotating, results_of
from dance_flwr.study.reports.figures import save
from dance_flwr.study.reports.significance import holm
from dance_flwr.study.reports.tables import NOTHING

EQUAL = (0.70, 0.71, 0.72)  # in the order of the seeds
LEVELS_SHOWN = (("standard", "standard"), ("text", "0.75"), ("core", "0.02"))


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


def comparison_lines(section, level):
    """The lines of every table of comparisons that begin with a level."""
    tables = [p for p in section.parts if isinstance(p, str) and p.startswith("| level |")]
    return [line for part in tables for line in table_rows(Section((part,)), level)]


def test_dance_is_ahead_where_it_is():
    section = regimes.EXPERIMENT.render(rows_with(AHEAD))
    # 10, 10.1 and 10 points against equals; three cells per rival, two of them without variance.
    (line,) = [line for line in comparison_lines(section, "0.75") if line[1] == "self-training"]
    assert line[2] == "10.03 ± 0.06" and line[-1] == "DANCE ahead"
    text = "\n".join(part for part in section.parts if isinstance(part, str))
    assert "in 1 of 3 cells: cora, text 0.75." in text
    (lead,) = [row for row in table_rows(section, "cora") if row[1:3] == ["text", "0.75"]]
    assert all(word.startswith("+10.03 ± 0.06 (p ") for word in lead[3:]) and len(lead) == 3 + 5
    assert table_rows(section, "fedavg-full")[0][:4] == ["fedavg-full", "1", "1", "1"]


def test_dance_is_ahead_nowhere_where_it_is_not():
    section = regimes.EXPERIMENT.render(rows_with({}))
    text = "\n".join(part for part in section.parts if isinstance(part, str))
    assert "in 0 of 3 cells." in text and "Where DANCE is ahead by 2 points" not in text
    behind = {("dance", "standard"): (0.60, 0.611, 0.62)}
    section = regimes.EXPERIMENT.render(rows_with(behind))
    lines = [line for line in comparison_lines(section, "standard") if line[1] == "self-training"]
    assert lines[0][-1] == "**DANCE loses**"
    assert table_rows(section, "self-training")[0][-1] == "1"


def test_tables_do_not_depend_on_the_order_of_the_rows():
    rows = rows_with(AHEAD)
    shown, backwards = (
        [part for part in regimes.EXPERIMENT.render(some).parts if isinstance(part, str)]
        for some in (rows, rows[::-1])
    )
    assert shown == backwards


def test_a_family_is_all_cells_of_a_rival():
    noisy = {
        ("dance", "0.75"): (0.80, 0.83, 0.82),
        ("dance", "standard"): (0.72, 0.74, 0.73),
        ("dance", "0.02"): (0.70, 0.72, 0.75),
    }
    results = results_of(rows_with(noisy))
    by_rival = {}
    for (_, rival), test in results.tests.items():
        by_rival.setdefault(rival, []).append(test)
    assert len(by_rival["fedavg-full"]) == 3 and len(by_rival["gcond"]) == 2
    for tests in by_rival.values():
        assert [test.p_holm for test in tests] == holm([test.p for test in tests])
        assert max(test.p_holm for test in tests) > min(test.p for test in tests)


def test_a_method_without_a_ratio_has_its_standard_row_at_every_r():
    accuracies = {("fedavg-full", "standard"): (0.5, 0.5, 0.5)}
    section = regimes.EXPERIMENT.render(rows_with(accuracies))
    (table,) = [p for p in section.parts if str(p).startswith("| accuracy % | 0.08 | 0.02 |")]
    assert table_rows(Section((table,)), "fedavg-full")[0][1:] == ["50.00 ± 0.00"] * 2
    assert table_rows(Section((table,)), "seeds")[0][1:] == ["3", "3"] and "gcond" not in table
    (line,) = [row for row in comparison_lines(section, "0.02") if row[1] == "fedavg-full"]
    assert line[2] == "21.00 ± 1.00"


def test_the_better_rotating_control_is_compared():
    better = {(ROTATING[0], "0.75"): (0.75, 0.76, 0.77)}
    rows = rows_with(better)
    results = results_of(rows)
    group = better_rotating(results.groups, Place("cora", "text", "0.75"))
    assert group.labels["variant"] == ROTATING[0]
    lines = comparison_lines(regimes.EXPERIMENT.render(rows), "0.75")
    assert {line[1] for line in lines if "rotating" in line[1]} == {ROTATING[0], "rotating-core"}


def test_missing_cells_are_dashes():
    missing = [(variant.name, "0.75") for variant in EVERYWHERE if variant.method == "dance"]
    section = regimes.EXPERIMENT.render(rows_with({}, missing))
    lines = comparison_lines(section, "0.75")
    assert lines and all(line[2:6] == [NOTHING] * 4 and line[-1] == NOTHING for line in lines)
    (gains,) = [row for row in table_rows(section, "text") if row[1] == "0.75"]
    assert gains[2:] == [NOTHING, NOTHING, NOTHING, NOTHING, "", ""]
    some = rows_with({})
    first = next(row for row in some if row.labels["variant"] == "dance")
    some[some.index(first)] = replace(first, result={})
    assert "71.50 ± 0.71 (2 of 3)" in str(regimes.EXPERIMENT.render(some).parts)


def test_fewer_seeds_than_the_column_are_said_in_the_cell():
    """The other methods run on five seeds where DANCE runs on ten."""
    rows = [
        row for row in rows_with({}) if row.labels["variant"] != "gcond" or row.labels["seed"] < 2
    ]
    section = regimes.EXPERIMENT.render(rows)
    (table,) = [p for p in section.parts if str(p).startswith("| accuracy % | standard |")]
    found = Section((table,))
    assert table_rows(found, "gcond")[0][1:] == ["70.50 ± 0.71 (2 seeds)"] * 2
    assert table_rows(found, "sfgc")[0][1:] == ["71.00 ± 1.00"] * 2
    assert table_rows(found, "seeds")[0][1:] == ["3", "3"]


def test_the_worth_of_each_part_is_shown_and_what_is_worth_nothing_is_named():
    parts = {
        ("dance", "0.75"): (0.80, 0.81, 0.82),
        ("dance w/o TC", "0.75"): (0.70, 0.70, 0.70),
        ("dance w/o NC", "0.75"): (0.796, 0.806, 0.816),
        ("dance w/o TGR", "0.75"): (0.794, 0.804, 0.814),
    }
    section = regimes.EXPERIMENT.render(rows_with(parts))
    (line,) = [row for row in table_rows(section, "text") if len(row) == 2 + len(ABLATIONS) + 2]
    worth = dict(zip(ABLATIONS, line[2:6], strict=True))
    assert worth == {
        "w/o TGR": "+0.60 ± 0.00",
        "w/o TC": "+11.00 ± 1.00",
        "w/o NC": "+0.40 ± 0.00",
        "w/o labels": "+10.00 ± 0.00",
    }
    assert line[6] == "w/o NC"


def test_rows_of_older_code_are_lines_of_their_own():
    """A row without a key of today is not averaged with the others, and its name says why."""
    rows = rows_with({})
    old = next(row for row in rows if row.labels["variant"] == "self-training")
    config = {key: value for key, value in old.config.items() if key != "hidden-dim"}
    section = regimes.EXPERIMENT.render(
        [replace(r, config=config) if r is old else r for r in rows]
    )
    assert "self-training (older than hidden-dim)" in str(section.parts)


def test_costs_by_hand():
    """Of the made-up run: 4 nodes x 90 tokens, 1000 tokens in all, 2000 bytes x 8 rounds, 60 s."""
    rows = {row.labels["variant"]: row for row in rows_with({})}
    assert [cost(rows["dance"]) for cost in COSTS.values()] == [0.36, 0.016, 50.0]
    assert [cost(rows["fedavg-full"]) for cost in COSTS.values()] == [1.0, 0.016, 50.0]


def test_pictures_show_accuracy_against_every_cost(tmp_path):
    section = regimes.EXPERIMENT.render(rows_with(AHEAD))
    (picture,) = [part for part in section.parts if isinstance(part, Picture)]
    assert picture.name == "regimes-costs-cora"
    text = save(picture, tmp_path)[1].read_text()
    for word in (*COSTS, "dance w/o NC", "fedc4", "foreign chunks 0.75"):
        assert word in text
