"""What `dance-flwr tables` does: Markdown pages and pictures, from rows alone."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from dance_flwr.config.paths import check_out
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError, counted
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cells import Experiment, Picture, Row, Section
from dance_flwr_studies.engine.llm_rows import stamp
from dance_flwr_studies.engine.rows import Rows, export_rows
from dance_flwr_studies.reports.figures import save, why_no_figures
from dance_flwr_studies.reports.results_table import chart, table_of
from dance_flwr_studies.reports.sections import seeds_text
from dance_flwr_studies.reports.tables import groups

Log = Callable[[str], None]
_REPORT = "report.md"
_LONGEST = 40  # lines of a table on the first page


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
    """Write the first page `report.md`, and for each experiment that has rows its page and files.

    NAME.md, NAME.tex, NAME.csv, and NAME.svg, .png and .pdf where its page has no figures; those
    are in `figures/`. Without matplotlib, there are no figures.

    Returns
    -------
    sections by the name of their experiment; those with a summary also have it under NAME-summary
    """
    missing = why_no_figures()
    sections: dict[str, Section] = {}
    entries, summaries = [], []
    for name, members in rows.by_experiment.items():
        experiment: Experiment = get_experiment(name)
        others = [row for other in experiment.reads for row in rows.by_experiment.get(other, ())]
        given = [*members, *others]
        section = experiment.render(given)
        commands = "\n".join(rows.commands.get(name, ()))
        first = f"Claim tested: {experiment.question}", f"```\n{commands}\n```"
        parts = [part for part in section.parts if not missing or isinstance(part, str)]
        sections[name] = Section((*first, *parts))
        text = _text(sections[name], folder, folder)
        write_text(folder / f"{name}.md", f"# {experiment.title}\n\n{text}\n")
        pictures = [part for part in parts if isinstance(part, Picture)]
        for picture in pictures:
            save(picture, folder / "figures")
        entries.append(f"## [{experiment.title}]({name}.md)\n\n{_claim(experiment, given)}")
        entries += _files(experiment, members, folder, draw=not (missing or pictures))
        if section.summary:
            sections[f"{name}-summary"] = Section((section.summary,))
            summaries.append(section.summary)
    texts = ["# Results", rows.provenance(), *summaries, *entries]
    write_text(folder / _REPORT, "\n\n".join(text for text in texts if text) + "\n")
    log(f"report      {folder / _REPORT}: {counted(len(rows.by_experiment), 'experiment')}")
    if missing:
        log(missing)
    return sections


def _claim(experiment: Experiment, rows: Sequence[Row]) -> str:
    if experiment.verdict is None:
        return f"Question: {experiment.question}"
    return f"Claim tested: {experiment.question}\n\nIn these rows: {experiment.verdict(rows)}"


def _files(
    experiment: Experiment, rows: Sequence[Row], folder: Path, *, draw: bool
) -> Iterator[str]:
    """Write the table of an experiment, and its figure; yield what the first page shows of them."""
    # Replies of the stub are no results.
    compared = groups([row for row in rows if row.config and not stamp(row)])
    table = table_of(compared, experiment.metrics, seeds_text(compared))
    if not table.lines:
        return
    name = experiment.name
    if len(table.lines) <= _LONGEST:
        yield table.markdown()
    table.write(folder, name)
    links = [f"[LaTeX]({name}.tex)", f"[CSV]({name}.csv)"]
    if draw:
        picture = chart(name, compared, next(iter(experiment.metrics.items())))
        save(picture, folder)
        links += [f"figure as [SVG]({name}.svg), [PDF]({name}.pdf), [PNG]({name}.png)"]
        yield f"![{name}]({name}.png)\n\n{picture.caption}"
    yield f"Table as {', '.join(links)}."


def insert(sections: dict[str, Section], folder: Path, file: Path, log: Log) -> None:
    """Replace the text between `<!-- begin NAME -->` and `<!-- end NAME -->` by its section."""
    _check_into(file)
    text = file.read_text(encoding="utf-8")
    names = []
    for name, section in sections.items():
        marks = re.compile(
            rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL
        )
        block = _text(section, folder, file.parent)
        # A function, as a template would read the backslashes of a block.
        text, count = marks.subn(partial(_between, block), text)
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


def _between(block: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{block}\n\n{match[2]}"
