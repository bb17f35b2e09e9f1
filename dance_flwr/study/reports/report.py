"""What `dance-flwr report` does: Markdown sections and pictures, from rows alone."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dance_flwr.config.outputs import check_out
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError
from dance_flwr.study import get_experiment
from dance_flwr.study.engine.cells import Picture, Section
from dance_flwr.study.engine.rows import Rows, export_rows
from dance_flwr.study.reports.figures import save

Say = Callable[[str], None]
_REPORT = "report.md"


def check_outputs(folder: Path, export: Path | None, into: Path | None) -> None:
    """Check, before rows are read, that a report and what goes with it can be written.

    Parameters
    ----------
    folder : of the report; export : file of compact rows; into : Markdown file with markers

    Raises
    ------
    UserError : names what is in the way, or the file that is missing
    """
    check_out(folder / _REPORT)
    if export is not None:
        check_out(export, "--export")
    if into is not None:
        _check_into(into)


def _check_into(file: Path) -> None:
    if not file.is_file():
        raise UserError(f"--into: expected a Markdown file, found none at {file}")


def write_report(rows: Rows, folder: Path, say: Say) -> dict[str, Section]:
    """Write `report.md` and `figures/`; return the sections of the experiments that have rows.

    Raises
    ------
    UserError : matplotlib is not installed
    """
    sections: dict[str, Section] = {}
    texts = ["# Results", rows.provenance()]
    for name, members in rows.by_experiment.items():
        experiment = get_experiment(name)
        others = [row for other in experiment.reads for row in rows.by_experiment.get(other, ())]
        sections[name] = _frame(
            experiment.render([*members, *others]), experiment.question, rows.commands.get(name, ())
        )
        for part in sections[name].parts:
            if isinstance(part, Picture):
                save(part, folder / "figures")
        texts += [f"## {experiment.title}", _text(sections[name], folder, folder)]
    write_text(folder / _REPORT, "\n\n".join(texts) + "\n")
    say(f"report      {folder / _REPORT}: {len(sections)} experiments")
    return sections


def insert(sections: dict[str, Section], folder: Path, file: Path, say: Say) -> None:
    """Replace the text between `<!-- begin NAME -->` and `<!-- end NAME -->` with NAME's section.

    Raises
    ------
    UserError : the file is missing, or has no marker of these experiments
    """
    _check_into(file)
    text = file.read_text(encoding="utf-8")
    names = []
    for name, section in sections.items():
        marks = re.compile(
            rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL
        )
        block = _text(section, folder, file.parent)
        text, count = marks.subn(partial(_between, block), text)
        names += [name] if count else []
    if not names:
        expected = ", ".join(f"<!-- begin {name} -->" for name in sections)
        raise UserError(f"--into {file}: expected one of the markers {expected}, found none")
    write_text(file, text)
    unmarked = [name for name in sections if name not in names]
    remark = f"; no markers for {', '.join(unmarked)}" if unmarked else ""
    say(f"into        {file}: {', '.join(names)}{remark}")


def export_into(
    study: Path, file: Path, say: Say, update: bool = False, replace: bool = False
) -> None:
    """Write compact rows and print their size; parameters as of `export_rows`."""
    lines = export_rows(study, file, update, replace)
    say(f"rows        {file}: {lines} lines, {file.stat().st_size:,} bytes")


def _frame(section: Section, question: str, commands: Sequence[str]) -> Section:
    """Prepend the tested claim and the commands to a section."""
    code = "\n".join(commands)
    return Section((f"Claim tested: {question}", f"```\n{code}\n```", *section.parts))


def _text(section: Section, folder: Path, base: Path) -> str:
    """Return a section as Markdown; pictures become links relative to `base`."""
    blocks = []
    for part in section.parts:
        if isinstance(part, Picture):
            where = Path(os.path.relpath(folder / "figures" / part.name, base)).as_posix()
            part = f"![{part.caption}]({where}.png)\n\n{part.caption} ([SVG]({where}.svg))"
        blocks.append(part)
    return "\n\n".join(blocks)


def _between(block: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{block}\n\n{match[2]}"
