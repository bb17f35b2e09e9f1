"""A table of results as Markdown, LaTeX and CSV; names of strangers."""

import csv
import io
import re
from statistics import mean, stdev

from dance_flwr_studies.reports.figures import save
from dance_flwr_studies.reports.results_table import Table, chart, latex
from dance_flwr_studies.reports.tables import groups, stat_of
from hypothesis import given
from hypothesis import strategies as st
from study_support.rows import cells_of, row_of

from dance_flwr.escaping import one_line

STRANGE = r"a_b & 100 % #1 $x$ {y} ~z^ \end{tabular} <c> |d| [e] *f"
SPOKEN = {  # what stands for a character in LaTeX
    **{f"\\{char}": char for char in "&%$#_{}"},
    **{r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"},
    **{r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|"},
    **{r"\textquotedbl{}": '"', "{[}": "[", "{*}": "*", r"$\pm$": "±"},
}
_TOKEN = re.compile("|".join(map(re.escape, sorted(SPOKEN, key=len, reverse=True))))
_NUMBER = re.compile(r"\$-?\d+\.\d+( \\pm \d+\.\d+)?\$( \(\d+ of \d+\))?")


def read(text):
    """What LaTeX prints of text in a cell; fails at what it would not print as it is."""
    left = _TOKEN.sub("", text)
    assert not set(left) & set(r"\&%$#_{}~^<>|[*"), left
    return _TOKEN.sub(lambda match: SPOKEN[match[0]], text)


def lines_of(source):
    """Check a `tabular` of booktabs strictly; the cells of its lines, headings first."""
    comment, begin, top, head, middle, *body, bottom, end = source.splitlines()
    assert comment.startswith(r"% \usepackage{booktabs}")
    columns = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", begin)[1]
    rules = [r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"]
    assert [top, middle, bottom, end] == rules
    cells = []
    for line in (head, *body):
        assert line.endswith(r" \\")
        words = re.split(r"(?<!\\) ?& ?", line.removesuffix(r" \\"))
        assert len(words) == len(columns), line
        cells.append([w if _NUMBER.fullmatch(w) or w == "--" else read(w) for w in words])
    return cells


def table(name=STRANGE):
    stats = [stat_of([0.8, 0.9], 2), stat_of([1 / 3], 2), stat_of([], 2)]
    metrics = ["accuracy", "macro-F1", "other"]
    return Table(["dataset", "method", "empty"], metrics, [([name, "m", ""], stats)], "2 seeds.")


def test_latex_prints_what_strangers_wrote_and_the_table_is_whole():
    source = table().latex()
    head, line = lines_of(source)
    assert head == ["data set", "method", "accuracy %", "macro-F1 %"]
    assert line == [STRANGE, "m", r"$85.00 \pm 7.07$", "$33.33$ (1 of 2)"]


@given(st.text())
def test_every_text_survives_latex(text):
    assert read(latex(text)) == one_line(text).replace("\N{EN DASH}", "--")


def test_csv_has_every_digit_and_a_column_for_each_number():
    (row,) = csv.DictReader(io.StringIO(table('a,"b"').csv()))
    assert row["dataset"] == 'a,"b"' and row["accuracy_n"] == "2"
    assert float(row["accuracy_mean"]) == mean([0.8, 0.9])
    assert float(row["accuracy_std"]) == stdev([0.8, 0.9])
    assert [row[f"macro_F1_{part}"] for part in ("mean", "std", "n")] == [repr(1 / 3), "", "1"]
    assert [row[f"other_{part}"] for part in ("mean", "std", "n")] == ["", "", "0"]


def test_csv_has_no_formula_of_a_stranger():
    (row,) = csv.DictReader(io.StringIO(table("=1+1").csv()))
    assert row["dataset"] == "'=1+1"


def test_markdown_keeps_the_cells_of_strangers_together():
    head, rule, line, _, note = table("a|b\n*c*").markdown().splitlines()
    assert head == "| data set | method | accuracy % | macro-F1 % |" and note == "2 seeds."
    assert line == r"| a&#124;b \*c\* | m | 85.00 ± 7.07 | 33.33 (1 of 2) |"
    assert head.count("|") == rule.count("|") == line.count("|")


def test_a_figure_shows_names_of_strangers_as_they_are(tmp_path):
    """Also a formula that is none, and data sets with different methods."""
    cells = cells_of("main-table", datasets=("a$b$^{", "b"), methods=("fedavg-full", "fedgta"))
    rows = [row_of(c, 0.5) for c in cells if c.labels != {**c.labels, "dataset": "b", "seed": 2}]
    picture = chart("main-table", groups(rows), ("accuracy", "test_accuracy"))
    paths = save(picture, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
    svg = paths[1].read_text()
    assert "a$b$^{" in svg and "accuracy (%)" in svg and svg.count(">fedavg-full<") == 1
