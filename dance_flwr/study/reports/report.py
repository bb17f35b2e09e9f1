"""What `dance-flwr report` does: Markdown pages and pictures, from rows alone."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dance_flwr.config.outputs import check_out
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError
from dance_flwr.study import get_experiment
from dance_flwr.study.engine.cells import Experiment, Picture, Section
from dance_flwr.study.engine.rows import Rows, export_rows
from dance_flwr.study.reports.figures import save

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
    """Write a page for each experiment that has rows, `figures/`, and the list `report.md`.

    Returns
    -------
    sections by the name of their experiment; those with a summary also have it under NAME-summary
    """
    sections: dict[str, Section] = {}
    lines, summaries = [], []
    for name, members in rows.by_experiment.items():
        experiment: Experiment = get_experiment(name)
        others = [row for other in experiment.reads for row in rows.by_experiment.get(other, ())]
        section = experiment.render([*members, *others])
        commands = "\n".join(rows.commands.get(name, ()))
        first = f"Claim tested: {experiment.question}", f"```\n{commands}\n```"
        sections[name] = Section((*first, *section.parts))
        for part in section.parts:
            if isinstance(part, Picture):
                save(part, folder / "figures")
        text = _text(sections[name], folder, folder)
        write_text(folder / f"{name}.md", f"# {experiment.title}\n\n{text}\n")
        lines.append(f"- [{experiment.title}]({name}.md): {experiment.question}")
        if section.summary:
            sections[f"{name}-summary"] = Section((section.summary,))
            summaries.append(section.summary)
    texts = ["# Results", rows.provenance(), *summaries, "\n".join(lines)]
    write_text(folder / _REPORT, "\n\n".join(texts) + "\n")
    log(f"report      {folder / _REPORT}: {len(lines)} experiments")
    return sections


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


def export_into(
    study: Path, file: Path, log: Log, update: bool = False, replace: bool = False
) -> None:
    """Write compact rows and print their size; parameters as of `export_rows`."""
    lines = export_rows(study, file, update, replace)
    log(f"rows        {file}: {lines} lines, {file.stat().st_size:,} bytes")


def _text(section: Section, folder: Path, base: Path) -> str:
    """Return a section as Markdown; pictures become links relative to `base`."""
    blocks = []
    for part in section.parts:
        if isinstance(part, Picture):
            place = Path(os.path.relpath(folder / "figures" / part.name, base)).as_posix()
            part = f"![{part.name}]({place}.png)\n\n{part.caption} ([SVG]({place}.svg))"
        blocks.append(part)
    return "\n\n".join(blocks)


def _between(block: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{block}\n\n{match[2]}"
