"""Verdicts on claims: what made-up rows support, refute, leave open or do not test."""

import pytest
from dance_flwr_studies import get_experiment
from dance_flwr_studies.reports.verdicts import FAILS, HOLDS, UNDECIDED, UNTESTED
from study_support.rows import cells_of, row_of

NOISE = (0.0, 0.001, -0.001, 0.002, 0.0)  # by seed


def verdict_of(name, mean_of, seeds=(0, 1, 2, 3, 4), **request):
    """The verdict on rows with the mean that `mean_of` gives for the labels of a cell."""
    rows = []
    for i, cell in enumerate(cells_of(name, datasets=("mine",), seeds=seeds, **request)):
        # Noise differs from cell to cell: equal differences have no test.
        noise = NOISE[(cell.labels["seed"] + i // len(seeds)) % 5] * (1 + i // len(seeds) / 10)
        mean = mean_of(cell.labels)
        rows.append(row_of(cell, None if mean is None else mean + noise))
    return get_experiment(name).verdict(rows)


def by_method(**means):
    return lambda labels: means[str(labels["method"]).replace("-", "_")]


RIVALS = {"methods": ("dance", "fedavg-full", "fedgta", "local-only"), "ratios": (0.08,)}


@pytest.mark.parametrize(
    ("dance", "fedgta", "seeds", "word", "place"),
    [
        (0.7, 0.8, (0, 1, 2, 3, 4), FAILS, "number 3 of 4 methods by the mean"),
        (0.9, 0.7, (0, 1, 2, 3, 4), HOLDS, "number 1 of 4"),
        (0.75, 0.7, (0, 1, 2, 3, 4), HOLDS, "number 2 of 4"),
        (0.7, 0.8, (0,), UNDECIDED, "number 3 of 4"),
    ],
)
def test_the_best_and_the_second_best_are_the_claim_of_the_main_table(
    dance, fedgta, seeds, word, place
):
    """A third place is not, and one seed decides nothing."""
    means = by_method(dance=dance, fedavg_full=0.8, fedgta=fedgta, local_only=0.6)
    text = verdict_of("main-table", means, seeds=seeds, **RIVALS)
    assert text.startswith(f"**{word}**") and place in text


def test_one_place_where_it_fails_is_enough():
    """Ahead at the first ratio, third at the second."""

    def mean(labels):
        if labels["method"] != "dance":
            return 0.8
        return {0.08: 0.9, 0.04: 0.7}[labels["ratio"]]

    text = verdict_of("main-table", mean, **RIVALS | {"ratios": (0.08, 0.04)})
    assert text.startswith(f"**{FAILS}**") and "r = 0.04" in text


@pytest.mark.parametrize(
    ("methods", "means"),
    [
        (("dance", "fedavg-full"), {"dance": 0.9, "fedavg_full": 0.8}),
        (("fedgta", "fedavg-full"), {"fedgta": 0.9, "fedavg_full": 0.8}),
        (RIVALS["methods"], dict.fromkeys(("dance", "fedavg_full", "fedgta", "local_only"))),
    ],
)
def test_a_rank_among_two_or_without_results_is_not_tested(methods, means):
    """Of two methods, each is the best or the second-best."""
    text = verdict_of("main-table", by_method(**means), methods=methods)
    assert text.startswith(f"**{UNTESTED}**")


@pytest.mark.parametrize(
    ("drop", "nodes", "word"),
    [(0.05, 0.1, HOLDS), (-0.05, 0.1, FAILS), (0.0, 0.1, UNDECIDED), (0.1, 0.05, FAILS)],
)
def test_an_ablation_lowers_the_accuracy_and_node_condensation_most(drop, nodes, word):
    """The last: every part lowers it, but node condensation least."""
    drops = {"full": 0.0, "w/o TGR": drop, "w/o TC": drop, "random labelled core": nodes}
    text = verdict_of("ablation", lambda labels: 0.8 - drops.get(labels["variant"], 0.0))
    assert text.startswith(f"**{word}**")


@pytest.mark.parametrize(("ahead", "word"), [(0.03, HOLDS), (0.0, HOLDS), (-0.05, FAILS)])
def test_a_method_that_is_no_point_behind_is_robust(ahead, word):
    means = by_method(dance=0.8 + ahead, fedavg_full=0.8)
    for name in ("clients", "backbone", "non-iid"):
        assert verdict_of(name, means).startswith(f"**{word}**"), name


def test_a_gain_below_what_the_paper_says_is_not_its_claim():
    """6.1 points on Cora, whatever on another graph."""
    cells = cells_of("refresh-study", datasets=("cora", "mine"), seeds=(0, 1, 2))
    rows = [
        row_of(cell, 0.8 + 0.03 * (cell.labels["variant"] != "Static-DANCE") + 0.0001 * i)
        for i, cell in enumerate(cells)
    ]
    verdict = get_experiment("refresh-study").verdict
    on_cora = [row for row in rows if row.labels["dataset"] == "cora"]
    assert "on cora" in verdict(on_cora) and "expected above 6.1" in verdict(on_cora)
    assert not verdict(on_cora).startswith(f"**{HOLDS}**")


def test_costs_are_compared_in_their_units():
    cells = cells_of("runtime", datasets=("mine",), methods=("fedavg-full", "dance"))
    rows = [row_of(cell, 0.5) for cell in cells]
    for i, row in enumerate(rows):
        slow = row.labels["method"] == "dance"
        row.result["steady_seconds"]["total"] = (2.5 if slow else 1.0) + 0.01 * (i % 3) * (1 + i)
    text = get_experiment("runtime").verdict(rows)
    assert text.startswith(f"**{FAILS}**: fedavg-full minus DANCE on mine: -1.5")
    assert "s per round" in text
