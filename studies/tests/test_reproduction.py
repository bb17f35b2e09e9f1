"""The committed pages of the study are what `tables` writes from the committed rows.

After a change of a table or a text, write them with

    dance-flwr tables studies/reproduction/results.jsonl --out studies/reproduction \\
        --into docs/reproduction.md
"""

import re
import shutil
import tomllib

import pytest
from dance_flwr_studies import EXPERIMENTS
from dance_flwr_studies.engine.rows import load_rows
from dance_flwr_studies.reports.report import insert, write_report
from support.project import PROJECT

pytest.importorskip("matplotlib")

PAGE = PROJECT / "docs" / "reproduction.md"
FOLDER = PROJECT / "studies" / "reproduction"
ROWS = FOLDER / "results.jsonl"
MAX_WORDS = 14_000  # of all pages together: what a reader may be asked to look through


@pytest.fixture(scope="module")
def rows():
    return load_rows(ROWS)


def page_of(name):
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def pages():
    """The pages of the experiments, without the list that `tables` writes beside them."""
    return {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")} | {
        "report.md": ""
    }


def test_the_pages_are_made_from_the_rows(rows, tmp_path, monkeypatch):
    # The pictures are made and not painted.
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **__: path.touch())
    page, folder = tmp_path / "reproduction.md", tmp_path / "reproduction"
    shutil.copy(PAGE, page)
    insert(write_report(rows, folder, print), folder, page, print)
    assert page.read_text() == PAGE.read_text()
    made = {path.name: path.read_text() for path in folder.glob("*.md")} | {"report.md": ""}
    assert made == pages()
    linked = {name for text in made.values() for name in re.findall(r"\(figures/([^)]*)\)", text)}
    committed, drawn = (
        {path.name for path in (place / "figures").iterdir()} for place in (FOLDER, folder)
    )
    assert linked == committed == drawn


def test_every_experiment_has_a_page_that_the_first_one_links():
    links = re.findall(r"\(\.\./studies/reproduction/([\w-]+)\.md\)", PAGE.read_text())
    assert set(links) == set(EXPERIMENTS) == {name[:-3] for name, text in pages().items() if text}


def test_the_pages_are_short():
    assert sum(len(text.split()) for text in [PAGE.read_text(), *pages().values()]) <= MAX_WORDS


def test_the_runs_of_an_experiment_are_of_one_code(rows):
    for name, table in rows.by_experiment.items():
        made = [row.result for row in table if row.result]
        assert len({run["provenance"] for run in made}) <= 1, name


def test_means_that_the_findings_quote_are_in_the_tables():
    findings = PAGE.read_text().partition("<!-- findings -->")[2].partition("<!-- /findings -->")[0]
    quoted = re.findall(r"[+-]?\d+\.\d+ ± \d+\.\d+", findings)
    assert len(quoted) > 10
    tables = "\n".join(pages().values())
    assert not [mean for mean in quoted if f"| {mean} |" not in tables]


def test_the_attacks_of_the_guide_are_those_of_the_page():
    guide = (PROJECT / "docs" / "privacy.md").read_text().partition("## Attacks")[2]
    table = "\n".join(re.findall(r"^\|.*±.*", guide, re.MULTILINE))
    quoted = re.findall(r"-?\d+\.\d+ ± \d+\.\d+", table)
    assert len(quoted) == 20
    assert not [mean for mean in quoted if f"| {mean} |" not in page_of("attacks")]


def test_the_table_of_the_readme_is_that_of_the_primary_page():
    """A line "Cora, DANCE" has the cells of DANCE in the page's table of Cora."""
    readme = (PROJECT / "README.md").read_text()
    lines = re.search(r"<!-- primary -->\n(.*)<!-- /primary -->", readme, re.DOTALL)[1].splitlines()
    _, *regimes = lines[0].strip("| ").split(" | ")
    assert len(lines) >= 2 + 3 * 4
    for line in lines[2:]:
        label, *cells = line.strip("| ").split(" | ")
        data, _, variant = label.partition(", ")
        table = page_of("primary").partition(f"| {data.split()[0].lower()}, accuracy % | ")[2]
        columns = table.partition(" |\n")[0].split(" | ")
        row = re.search(rf"^\| {re.escape(variant)} \| (.*) \|$", table, re.MULTILINE)
        shown = dict(zip(columns, row[1].split(" | "), strict=True))
        assert cells == [shown.get(regime, "\N{EN DASH}") for regime in regimes], label


def test_every_row_is_of_a_commit_that_is_named(rows):
    """That its code is the rows' is checked by the command of the page."""
    commits = tomllib.loads((FOLDER / "commits.toml").read_text())
    every = [row for table in rows.by_experiment.values() for row in table if row.result]
    assert {row.result["provenance"] for row in every} == commits.keys()
    assert all(commit in PAGE.read_text() for commit in commits.values())


def test_the_readme_quotes_the_paper_as_the_main_table_does():
    page, readme = page_of("main-table"), " ".join((PROJECT / "README.md").read_text().split())

    def printed(method):
        row = re.search(rf"^\| {method} \| (.*) \|$", page, re.M)[1].split(" | ")
        return [row[column].split()[0] for column in (1, 3)]

    (cora, citeseer), (fedavg, _) = printed(r"dance \| 0\.08"), printed(r"fedavg-full \| full")
    assert f"The paper reports {cora} on Cora and {citeseer} on CiteSeer" in readme
    assert f"Its FedAvg has {fedavg}" in readme
    assert f"{float(cora) - float(fedavg):+.1f} there" in readme
