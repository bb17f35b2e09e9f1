"""Rows of the main table of methods with a property of their own, and the paper's numbers."""

from dance_flwr_studies import get_experiment
from dance_flwr_studies.reports.trained_nodes import nodes_trained_on
from study_support.rows import cells_of, row_of

from dance_flwr.methods import get_spec


def text_of(rows):
    return "\n".join(map(str, get_experiment("main-table").render(rows).parts))


def test_the_table_says_whose_model_is_scored():
    def text(*names):
        cells = cells_of("main-table", methods=names, seeds=(0,))
        return text_of([row_of(cell, 0.5) for cell in cells])

    scored = "Each client's own model is scored: fedgta, local-only."
    assert scored in text("local-only", "fedavg-full", "fedgta")
    assert "own model is scored" not in text("fedavg-full", "fedtad")


def test_rotating_nodes_have_a_row_per_ratio_and_their_number():
    card = get_spec("fedavg-rotating").card
    assert card.by_ratio and card.rotates and not card.condenses
    cells = cells_of("main-table", methods=("fedavg-rotating",), seeds=(0,))
    assert [cell.labels["ratio"] for cell in cells] == [0.08, 0.04, 0.02]
    assert [cell.config.condensation_ratio for cell in cells] == [0.08, 0.04, 0.02]
    rows = [row_of(cell, 0.5) for cell in cells]
    rows[0].result["per_condensed_node"] |= {"supervised_per_round": 60.0}
    assert nodes_trained_on(rows[0]) == 30.0  # two clients
    assert "| fedavg-rotating | 0.04 |" in text_of(rows)
    assert "| fedavg-rotating | 30.0 |" in text_of(rows)  # labelled nodes of a round
