"""The part of a run's page that lays other runs over it: curves, and what differences can show."""

from collections.abc import Mapping
from pathlib import Path

from dance_flwr.errors import UserError
from dance_flwr.pages.charts import Chart, Line, line_chart
from dance_flwr.pages.run_parts import NO_NODES, Section, Table, four, percent
from dance_flwr.runs.facts import RunFacts


def comparison(facts: RunFacts, by_folder: Mapping[Path, RunFacts | str]) -> Section:
    """Return the curves of several runs in one chart, and the verdict on each pair.

    Parameters
    ----------
    by_folder : the runs beside the first; a text = why one is not shown
    """
    others = [other for other in by_folder.values() if isinstance(other, RunFacts)]
    every = [facts, *others]
    methods = [one.status.method for one in every]
    # A method of which there are several is told by the folder of each run.
    repeats = len(set(methods)) < len(methods)
    names = [Path(one.status.folder).name for one in every] if repeats else methods
    lines = [
        Line(name, [(row.round, percent(row.val_accuracy)) for row in one.rows])
        for name, one in zip(names, every, strict=True)
    ]
    from dance_flwr.api.prediction.comparison import compare_runs  # opens clients

    sentences = [
        f"The run in {folder.name} was compared, too, and is not shown: {other}."
        for folder, other in by_folder.items()
        if isinstance(other, str)
    ]
    rows = [(names[0], four(facts.status.test_accuracy) or NO_NODES, "")]
    for name, other in zip(names[1:], others, strict=True):
        try:
            folders = (Path(run.status.folder) for run in (facts, other))
            verdict = compare_runs(*folders).verdict
        except UserError as error:
            verdict = str(error)
        sentences.append(f"Against {name}: {verdict}.")
        rows.append((name, four(other.status.test_accuracy) or NO_NODES, verdict))
    title = "Validation accuracy of all runs by round"
    chart = Chart("compared", title, " ".join(sentences))
    table = Table(
        "Test accuracy; differences have a 95 % interval, paired by test node",
        ("run", "test accuracy", "the first run against it"),
        rows,
        numbers=False,
    )
    drawn = line_chart(chart, lines, "accuracy on validation nodes (%)")
    return Section("compared", "Compared runs", sentences, [(drawn, table)])
