"""An experiment of another package."""

from dance_flwr_studies.engine.cells import Cell, Experiment, Section


def cells(request):
    """Return one cell per data set and seed."""
    return [
        Cell({"dataset": dataset, "seed": seed}, request.config(dataset, "fedavg-full", seed))
        for dataset in request.datasets
        for seed in request.seeds
    ]


EXPERIMENT = Experiment(
    title="Toy",
    question="Does a plug-in run?",
    cells=cells,
    render=lambda rows: Section((f"{len(rows)} rows",)),
)
