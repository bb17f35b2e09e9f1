"""The study of personal models: its family, and what it says of made-up rows."""

from dataclasses import replace
from functools import cache

from dance_flwr_studies.protocols import personal
from dance_flwr_studies.protocols.personal import CELLS, DANCE, VARIANTS
from study_support.rows import cells_of, row_of

SEEDS = (0, 1, 2, 3, 4)


@cache
def cells():
    return cells_of("personal", datasets=("cora",), seeds=SEEDS)


def section(accuracies, shared=None):
    """The section of made-up rows; `accuracies` by (variant, cell), with a little noise by seed.

    `shared` are those of the global models, which are 5 points lower elsewhere.
    """
    shared = shared or {}
    rows = []
    for cell in cells():
        key = cell.labels["variant"], cell.labels["cell"]
        accuracy = accuracies.get(key, 0.7) + (0.001 if cell.labels["seed"] % 2 else 0.0)
        if key[0] != DANCE:
            accuracy += 0.0005 * cell.labels["seed"]  # else all differences are equal
        row = row_of(cell, accuracy)
        views = {"deployed": accuracy, "global": shared.get(key, accuracy - 0.05)}
        rows.append(replace(row, result=row.result | {"test_accuracy_by_view": views}))
    return personal.EXPERIMENT.render(rows).parts


def test_every_variant_runs_in_every_cell_on_the_same_seeds():
    assert len(cells()) == len(CELLS) * len(VARIANTS) * len(SEEDS)
    assert {cell.config.text_pooling for cell in cells()} == {"probe"}
    kinds = {(cell.config.method, cell.config.personal) for cell in cells()}
    assert kinds == {
        *(("dance", "auto"), ("fedavg-full", "mix"), ("fedavg-full", "tune")),
        *((method, "off") for method in ("fedper", "ditto", "local-only", "fedgta")),
    }
    # Rivals that train FedAvg's network have its searched settings.
    network = {
        (cell.config.hidden_dim, cell.config.learning_rate, cell.config.weight_decay)
        for cell in cells()
        if cell.config.method in ("fedavg-full", "fedper", "ditto")
    }
    assert len(network) == 1
    sites = cells_of("personal", datasets=("debian",), seeds=(0,))
    assert {cell.labels["cell"] for cell in sites} == {
        name for name, (_, by_site) in CELLS.items() if by_site
    }


def test_the_global_model_is_read_from_the_runs_of_personal_ones():
    table = next(part for part in section({}) if part.startswith("| % |"))
    lines = {line.split(" | ")[0].strip("| "): line for line in table.splitlines()}
    assert "65.0" in lines["dance, global"]
    assert "/" not in lines["dance, global"]
    assert "70.0" in lines[DANCE]
