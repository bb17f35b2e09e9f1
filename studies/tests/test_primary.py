"""The primary comparisons, the budget of texts and the paper's rules, on made-up rows."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
from dance_flwr_studies.protocols import primary
from dance_flwr_studies.protocols.primary import ALONE, DANCE, PERSONAL, QUESTIONS, TEXT
from scipy.stats import t as student
from study_support.rows import cells_of, row_of

SEEDS = tuple(range(5, 11))


def wave(seed):
    return 0.01 * math.sin(seed)


@pytest.fixture(scope="module")
def rows():
    """Every accuracy is 0.7, moved a little by the seed."""
    cells = cells_of("primary", datasets=("cora", "citeseer", "debian"), seeds=SEEDS)
    made = [row_of(cell, 0.7 + wave(cell.labels["seed"])) for cell in cells]
    return [
        replace(row, result=row.result | {"test_worst_client": row.result["test_accuracy"]})
        for row in made
    ]


def moved(rows, change):
    """Return the rows with `change(labels)` added to all their scores."""
    return [
        replace(
            row,
            result=row.result
            | {
                name: row.result[name] + change(row.labels)
                for name in ("test_accuracy", "test_macro_f1", "test_worst_client")
            },
        )
        for row in rows
    ]


def answers(rows):
    """Question -> (difference, seeds above 0, p, what it shows, word)."""
    table = primary.EXPERIMENT.render(rows).parts[1].splitlines()[2:]
    lines = [line.strip("| ").split(" | ") for line in table]
    return {cells[0][:3]: cells[1:] for cells in lines}


def test_every_question_has_all_its_cells_and_every_seed():
    cells = cells_of("primary", datasets=("cora", "citeseer", "debian"), seeds=primary.SEEDS)
    seeds = {}
    for cell in cells:
        key = tuple(cell.labels[name] for name in ("dataset", "regime", "variant"))
        seeds.setdefault(key, []).append(cell.labels["seed"])
    assert len(QUESTIONS) == 6
    for question in QUESTIONS:
        asked = [
            seeds[*cell, name] for cell in question.cells for name in (question.of, *question.to)
        ]
        assert all(each == asked[0] for each in asked)
        assert len(asked[0]) == (10 if question.cells[0][0] == "debian" else 20)


def test_a_difference_is_one_number_per_seed_and_its_test_the_corrected_one(rows):
    """Two points on Cora, four on CiteSeer, both with a wave: three points."""

    def change(labels):
        if labels["variant"] != DANCE or labels["regime"] != TEXT:
            return 0.0
        return (0.02 if labels["dataset"] == "cora" else 0.04) + wave(3 * labels["seed"])

    values = [0.03 + wave(3 * seed) for seed in SEEDS]
    mean, n = fmean(values), len(values)
    spread = sum((value - mean) ** 2 for value in values) / (n - 1)
    half = student.ppf(0.975, n - 1) * math.sqrt((1 / n + 0.2 / 0.6) * spread)
    difference, signs, _, shows, _ = answers(moved(rows, change))["(b)"]
    low, high = 100 * (mean - half), 100 * (mean + half)
    assert difference == f"{100 * mean:+.2f} [{low:+.2f}, {high:+.2f}]"
    assert signs == f"{sum(value > 0 for value in values)} of {n}"
    steps = student.ppf(1 - 0.05 / 12, n - 1) + student.ppf(0.8, n - 1)
    assert float(shows) == pytest.approx(
        100 * steps * math.sqrt((1 / n + 1 / 3) * spread), abs=0.006
    )


def test_of_two_others_the_better_one_counts(rows):
    """Alone is two points better than the global model, and personal models a point above that."""
    points = {ALONE: 0.02, PERSONAL: 0.03}
    shown = answers(
        moved(
            rows,
            lambda at: (
                points.get(at["variant"], 0.0) + wave(at["seed"] ** 2) * (at["variant"] == PERSONAL)
            ),
        )
    )
    mean = fmean(0.01 + wave(seed**2) for seed in SEEDS)
    assert shown["(e)"][0].startswith(f"{100 * mean:+.2f} ")


def test_unfinished_rows_answer_nothing(rows):
    section = primary.EXPERIMENT.render([replace(row, result={}) for row in rows])
    assert not any("ahead" in part for part in section.parts if "|" in part)


def test_the_budget_of_texts_draws_what_its_table_says(tmp_path):
    from dance_flwr_studies import get_experiment
    from dance_flwr_studies.reports.figures import save

    cells = cells_of("texts", datasets=("cora",), seeds=(5, 6))
    made = [row_of(cell, 0.6 + cell.labels["ratio"] / 10) for cell in cells]
    _, table, picture = get_experiment("texts").render(made).parts
    # Two clients with three nodes in each core, 30 and 20 in all.
    assert "| cora: clean | 6 |" in table and "| cora: clean | 50 |" in table
    pytest.importorskip("matplotlib")
    assert all(path.stat().st_size for path in save(picture, tmp_path))
