"""What `dance-flwr tables` does: Markdown pages and pictures, from rows alone."""

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from dance_flwr.config.paths import check_out
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import spreadsheet_cell
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cells import Experiment, Picture, Row, Section
from dance_flwr_studies.engine.llm_rows import stamp
from dance_flwr_studies.engine.rows import Rows, export_rows
from dance_flwr_studies.reports.figures import save
from dance_flwr_studies.reports.tables import groups, value_of

Log = Callable[[str], None]
_REPORT = "report.md"


def check_outputs(folder: Path, export: Path | None, into: Path | None) -> None:
    """Check, before rows are read, that a report and what goes with it can be written."""
    check_out(folder / _REPORT)
    if export is not None:
        check_out(export, "--export")
    if into is not None:
        _check_into(into)


def _check_into(file: Path) -> None:
    if not file.is_file():
        raise UserError(f"--into: expected a Markdown file, found none at {file}")


def write_report(rows: Rows, folder: Path, log: Log) -> dict[str, Section]:
    """Write the first page `report.md`, and for each experiment that has rows its page and scores.

    They are NAME.md, its pictures in `figures/`, and NAME.csv.

    Returns
    -------
    sections by the name of their experiment; those with a summary also have it under NAME-summary
    """
    sections: dict[str, Section] = {}
    entries, summaries = [], []
    for name, members in rows.by_experiment.items():
        experiment: Experiment = get_experiment(name)
        others = [row for other in experiment.reads for row in rows.by_experiment.get(other, ())]
        given = [*members, *others]
        section = experiment.render(given)
        commands = "\n".join(rows.commands.get(name, ()))
        first = f"Claim tested: {experiment.question}", f"```\n{commands}\n```"
        sections[name] = Section((*first, *section.parts))
        text = _text(sections[name], folder, folder)
        write_text(folder / f"{name}.md", f"# {experiment.title}\n\n{text}\n")
        for part in section.parts:
            if isinstance(part, Picture):
                save(part, folder / "figures")
        entries.append(f"## [{experiment.title}]({name}.md)\n\n{_claim(experiment, given)}")
        if scores := _scores(experiment, members):
            write_text(folder / f"{name}.csv", scores)
            entries.append(f"Scores of the runs: [CSV]({name}.csv).")
        if section.summary:
            sections[f"{name}-summary"] = Section((section.summary,))
            summaries.append(section.summary)
    texts = ["# Results", rows.provenance(), *summaries, *entries]
    write_text(folder / _REPORT, "\n\n".join(text for text in texts if text) + "\n")
    log(f"report      {folder / _REPORT}: {counted(len(rows.by_experiment), 'experiment')}")
    return sections


def _claim(experiment: Experiment, rows: Sequence[Row]) -> str:
    if experiment.verdict is None:
        return f"Question: {experiment.question}"
    return f"Claim tested: {experiment.question}\n\nIn these rows: {experiment.verdict(rows)}"


def _scores(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return a line per finished run as CSV: labels, settings that tell groups apart, scores."""
    # Replies of the stub are no results.
    lines = [
        {
            **{key: spreadsheet_cell(str(value)) for key, value in row.labels.items()},
            "settings": spreadsheet_cell(group.note),
            **{heading: value_of(row, key) for heading, key in experiment.metrics.items()},
        }
        for group in groups([row for row in rows if row.result and not stamp(row)])
        for row in group.rows
    ]
    if not lines or not experiment.metrics:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, {key: None for line in lines for key in line}, lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def insert(sections: dict[str, Section], folder: Path, file: Path, log: Log) -> None:
    """Replace the text between `<!-- begin NAME -->` and `<!-- end NAME -->` by its section."""
    _check_into(file)
    text = file.read_text(encoding="utf-8")
    names = []
    for name, section in sections.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        marks = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        block = f"{begin}\n{_text(section, folder, file.parent)}\n\n{end}"
        # A function, as a template would read the backslashes of a block.
        text, count = marks.subn(lambda _, block=block: block, text)  # type: ignore[misc]
        names += [name] if count else []
    if not names:
        expected = ", ".join(f"<!-- begin {name} -->" for name in sections)
        raise UserError(f"--into {file}: expected one of the markers {expected}, found none")
    write_text(file, text)
    log(f"into        {file}: {', '.join(names)}")


def export_into(study: Path, file: Path, log: Log, update: bool = False) -> None:
    """Write compact rows and print their size; parameters as of `export_rows`."""
    lines = export_rows(study, file, update)
    log(f"rows        {file}: {counted(lines, 'line')}, {file.stat().st_size:,} bytes")


def _text(section: Section, folder: Path, base: Path) -> str:
    """Return a section as Markdown; pictures become links relative to `base`."""
    blocks = []
    for part in section.parts:
        if isinstance(part, Picture):
            place = Path(os.path.relpath(folder / "figures" / part.name, base)).as_posix()
            part = f"![{part.name}]({place}.png)\n\n{part.caption} ([SVG]({place}.svg))"
        blocks.append(part)
    # A table without any value is empty.
    return "\n\n".join(block for block in blocks if block)
