"""Finished runs beside each other: a table as Markdown, LaTeX and CSV, and their curves."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dance_flwr.config.paths import check_out
from dance_flwr.disk import write_text
from dance_flwr.runs.result import config_of, read_result
from dance_flwr_studies.engine.cells import ACCURACIES, Label, Picture, Row, dataset_name
from dance_flwr_studies.engine.compact_rows import compact
from dance_flwr_studies.engine.folder import settings_of
from dance_flwr_studies.reports.figures import save, validation_curves, why_no_figures
from dance_flwr_studies.reports.results_table import name_of, table_of
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.tables import groups

NAME = "comparison"


def compare(runs: Sequence[Path], folder: Path, log: Callable[[str], None]) -> None:
    """Write comparison.md, .tex, .csv, and validation by round as comparison.svg, .pdf, .png.

    Runs that differ in the seed alone are one line.

    Raises
    ------
    UserError : a run is not finished, or nothing can be written to `folder`
    """
    check_out(folder / f"{NAME}.md")
    compared = groups(_rows(runs))
    table = table_of(compared, ACCURACIES, seeds_text(compared))
    table.write(folder, NAME)
    parts = ["# Comparison", table.markdown()]
    if missing := why_no_figures():
        log(missing)
    else:
        caption = "Validation accuracy by round."
        draw = partial(validation_curves, {name_of(group): group for group in compared})
        save(Picture(NAME, caption, draw), folder)
        parts.append(f"![{NAME}]({NAME}.png)\n\n{caption}")
    write_text(folder / f"{NAME}.md", "\n\n".join(parts) + "\n")
    log(f"tables      {folder / NAME}.md, .tex and .csv")
    if not missing:
        log(f"figure      {folder / NAME}.svg, .pdf and .png")


def _rows(runs: Sequence[Path]) -> list[Row]:
    folders = list(dict.fromkeys(run.resolve() for run in runs))
    results = [read_result(folder) for folder in folders]
    configs = [config_of(result) for result in results]
    settings = [settings_of(config) for config in configs]
    times = Counter(map(repr, settings))
    rows = []
    for folder, result, config, keys in zip(folders, results, configs, settings, strict=True):
        labels: dict[str, Label] = {"dataset": dataset_name(config.data), "method": config.method}
        # Repetitions of one seed must not be averaged as if they were several seeds.
        labels |= {"run": str(folder)} if times[repr(keys)] > 1 else {}
        labels |= {"seed": config.seed}
        rows.append(Row("", labels, folder.name, keys, compact(result, {}, curve=True)))
    return rows
