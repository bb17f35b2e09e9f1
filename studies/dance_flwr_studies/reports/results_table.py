"""A table of results as Markdown, LaTeX and CSV, and a figure of the same numbers."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dance_flwr.disk import write_text
from dance_flwr.escaping import markdown as as_markdown
from dance_flwr.escaping import one_line, spreadsheet_cell
from dance_flwr_studies.engine.cells import Picture
from dance_flwr_studies.reports.figures import COLOURS
from dance_flwr_studies.reports.tables import Group, Stat, markdown, with_values

_HEADINGS = {"dataset": "data set", "ratio": "r"}  # of labels whose names are not what they say
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\N{EN DASH}": "--",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    # After the end of a line, these would be read as its options.
    "[": "{[}",
    "*": "{*}",
}


@dataclass(frozen=True)
class Table:
    """What is shown of results: names, and means of shares over seeds.

    Attributes
    ----------
    keys : labels of the columns that name a line; metrics : headings of those with a `Stat`
    lines : cells under keys and metrics
    note : how many runs the means are of, in a sentence
    """

    keys: Sequence[str]
    metrics: Sequence[str]
    lines: Sequence[tuple[Sequence[str], Sequence[Stat]]]
    note: str = ""

    def markdown(self) -> str:
        """Return the note and the table, in percent; "" without any value."""
        headings, lines = self._shown()
        cells = [[c.percent if isinstance(c, Stat) else as_markdown(c) for c in x] for x in lines]
        return "\n\n".join(part for part in (markdown(headings, cells), self.note) if part)

    def latex(self) -> str:
        r"""Return a `tabular` of the package booktabs, in percent, "mean ± std" as $1 \pm 2$."""
        headings, lines = self._shown()
        align = "".join("r" if heading.endswith(" %") else "l" for heading in headings)
        rows = [" & ".join(map(_latex_cell, line)) + r" \\" for line in lines]
        body = [" & ".join(map(latex, headings)) + r" \\", r"\midrule", *rows]
        return "\n".join(
            [
                rf"% \usepackage{{booktabs}}; {one_line(self.note)}".rstrip("; "),
                rf"\begin{{tabular}}{{{align}}}",
                *(r"\toprule", *body, r"\bottomrule"),
                "\\end{tabular}\n",
            ]
        )

    def csv(self) -> str:
        """Return the shares with all digits: columns of mean, std and n for each metric."""
        names = [re.sub(r"\W+", "_", metric) for metric in self.metrics]
        columns = [f"{name}_{part}" for name in names for part in ("mean", "std", "n")]
        lines = [
            [
                *map(spreadsheet_cell, keys),
                *(value for stat in stats for value in (stat.mean, stat.std, stat.n)),
            ]
            for keys, stats in self.lines
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*self.keys, *columns], *lines])
        return text.getvalue()

    def write(self, folder: Path, name: str) -> None:
        """Write NAME.tex and NAME.csv; the Markdown is for a page."""
        write_text(folder / f"{name}.tex", self.latex())
        write_text(folder / f"{name}.csv", self.csv())

    def _shown(self) -> "tuple[list[str], list[list[str | Stat]]]":
        keys = [_HEADINGS.get(key, key) for key in self.keys]
        headings = [*keys, *(f"{metric} %" for metric in self.metrics)]
        lines: list[list[str | Stat]] = [[*keys, *stats] for keys, stats in self.lines]
        return with_values(headings, lines, len(self.keys))


def latex(text: str) -> str:
    """Return text that LaTeX prints as it is, on one line."""
    return "".join(_LATEX.get(char, char) for char in one_line(text))


def _latex_cell(cell: str | Stat) -> str:
    if isinstance(cell, str):
        return latex(cell)
    if cell.mean is None:
        return "--"
    mean = cell.text(2, 100).replace("\N{PLUS-MINUS SIGN}", r"\pm")
    return f"${mean}${cell.missing}"


def table_of(compared: Sequence[Group], metrics: Mapping[str, str], note: str) -> Table:
    """Return a table with a line per group and a column per label and metric.

    Parameters
    ----------
    metrics : heading -> key of the results
    """
    names = list(dict.fromkeys(name for group in compared for name in group.labels))
    lines = []
    for group in compared:
        keys = [str(group.labels.get(name, "")) for name in names]
        lines.append(([*keys, group.note], [group.stat(key) for key in metrics.values()]))
    # Without a result there is nothing to show, and a label that none has is no column.
    lines = [line for line in lines if any(stat.n for stat in line[1])]
    keys = [*names, "settings"]
    used = [i for i in range(len(keys)) if any(line[0][i] for line in lines)]
    return Table(
        [keys[i] for i in used],
        list(metrics),
        [([cells[i] for i in used], stats) for cells, stats in lines],
        note,
    )


def chart(name: str, compared: Sequence[Group], metric: tuple[str, str]) -> Picture:
    """Return a figure of means and deviations: a line per name, a panel per data set.

    Parameters
    ----------
    metric : heading and key of the results
    """
    heading, key = metric
    panels: dict[str, dict[str, Stat]] = {}
    for group in compared:
        if (stat := group.stat(key)).n:
            panels.setdefault(str(group.labels["dataset"]), {})[name_of(group)] = stat
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    # A name takes 0.07 inches per letter.
    width = 0.6 + 0.07 * max(map(len, names), default=0) + 2.4 * max(1, len(panels))
    caption = f"{heading.capitalize()} in %, mean and standard deviation over seeds."
    draw = partial(_draw, names, panels, f"{heading} (%)")
    return Picture(name, caption, draw, (width, 1.0 + 0.26 * max(1, len(names))))


def _draw(
    names: Sequence[str], panels: Mapping[str, Mapping[str, Stat]], label: str, figure: Any
) -> None:
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False, sharey=True)[0]
    for axis, (dataset, stats) in zip(axes, panels.items(), strict=False):
        axis.errorbar(
            [100 * (stat.mean or 0.0) for stat in stats.values()],
            [names.index(name) for name in stats],
            xerr=[100 * (stat.std or 0.0) for stat in stats.values()],
            fmt="o",
            color=COLOURS[0],
            markersize=5,
            capsize=3,
        )
        axis.set(title=_plain(dataset), xlabel=label)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), map(_plain, names))
    axes[0].set_ylim(len(names) - 0.5, -0.5)


def name_of(group: Group) -> str:
    """Return what names a group within its data set: its labels, and its note."""
    words = [
        value if isinstance(value, str) else f"{_HEADINGS.get(name, name)}={value}"
        for name, value in group.labels.items()
        if name != "dataset" and (name, value) != ("ratio", "full")
    ]
    return group.name(" ".join(words))


def _plain(text: str) -> str:
    """Return text in which matplotlib sees no formula."""
    return one_line(text).replace("$", r"\$")
