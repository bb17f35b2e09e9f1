"""The committed page of the study is what `report` writes from the committed rows.

After a change of a table or a text, write it with

    dance-flwr report docs/reproduction/results.jsonl --out docs/reproduction \\
        --into docs/reproduction.md
"""

import re
import shutil

import pytest
from support.project import PROJECT

from dance_flwr.study import EXPERIMENTS
from dance_flwr.study.engine.rows import load_rows
from dance_flwr.study.reports.report import insert, write_report

pytest.importorskip("matplotlib")

PAGE = PROJECT / "docs" / "reproduction.md"
ROWS = PROJECT / "docs" / "reproduction" / "results.jsonl"


def test_the_page_is_made_from_the_rows(tmp_path):
    page, folder = tmp_path / "reproduction.md", tmp_path / "reproduction"
    shutil.copy(PAGE, page)
    insert(write_report(load_rows(ROWS), folder, print), folder, page, print)
    assert page.read_text() == PAGE.read_text()
    linked = re.findall(r"\((reproduction/figures/[\w.-]+)\)", page.read_text())
    assert linked and all((PAGE.parent / name).is_file() for name in linked)
    committed = {path.name for path in (PAGE.parent / "reproduction" / "figures").iterdir()}
    assert committed == {path.name for path in (folder / "figures").iterdir()}


def test_every_experiment_has_its_place_on_the_page():
    text = PAGE.read_text()
    for name in EXPERIMENTS:
        assert f"<!-- begin {name} -->" in text and f"<!-- end {name} -->" in text, name


def test_every_run_is_of_one_code():
    """Rows of before the provenance have a hash over bytes instead."""
    rows = load_rows(ROWS)
    made = [row.result for table in rows.by_experiment.values() for row in table if row.result]
    hashes = {run.get("provenance") or run["code_fingerprint"] for run in made}
    assert len(hashes) == 1 and "provenance unknown" in rows.provenance()


def test_means_that_the_findings_quote_are_in_the_tables():
    findings, _, tables = PAGE.read_text().partition("<!-- /findings -->")
    quoted = re.findall(r"\d+\.\d+ ± \d+\.\d+", findings)
    assert len(quoted) > 10
    assert not [mean for mean in quoted if mean not in tables]


def test_the_attacks_of_the_guide_are_those_of_the_page():
    page = PAGE.read_text().partition("<!-- begin attacks -->")[2]
    guide = (PROJECT / "docs" / "privacy.md").read_text().partition("## Attacks")[2]
    table = "\n".join(re.findall(r"^\|.*±.*", guide, re.MULTILINE))
    quoted = re.findall(r"-?\d+\.\d+ ± \d+\.\d+", table)
    assert len(quoted) == 20
    assert not [mean for mean in quoted if f"| {mean} |" not in page]


NAMES = {  # of a line in the README -> in the page
    "FedAvg on all labelled nodes": "fedavg-full",
    "FedAvg that reads as DANCE does": "fedavg-full as DANCE reads",
    "DANCE at 8 %": "dance",
    "DANCE with a random core": "dance w/o NC",
}


COLUMNS = ("standard", "0.75", "1", "Dirichlet 0.1", "5")  # of the README, as the page names levels


def test_the_table_of_regimes_in_the_readme_is_that_of_the_page():
    page = re.search(r"<!-- begin regimes -->(.*)<!-- end regimes -->", PAGE.read_text(), re.DOTALL)
    readme = (PROJECT / "README.md").read_text()
    lines = re.search(r"<!-- regimes -->\n(.*)<!-- /regimes -->", readme, re.DOTALL)[1].splitlines()
    assert len(lines) == 2 + 3 * len(NAMES)
    for line in lines[2:]:
        label, *cells = line.strip("| ").split(" | ")
        data, _, name = label.partition(", ")
        own = page[1].partition(f"**{data.split()[0].lower()}**, standard")[2].partition("\n**")[0]
        shown: dict[str, str] = {}
        for table in own.split("\n| accuracy % | ")[1:]:
            levels = table.partition(" |\n")[0].split(" | ")
            row = re.search(rf"^\| {re.escape(NAMES[name])} \| (.*) \|$", table, re.MULTILINE)
            shown = dict(zip(levels, row[1].split(" | "), strict=True)) | shown
        assert cells == [shown.get(level, "\N{EN DASH}") for level in COLUMNS], label


def test_the_results_in_the_readme_are_those_of_the_main_table():
    page = PAGE.read_text().partition("<!-- begin main-table -->")[2]
    halves = page.partition("<!-- end main-table -->")[0].partition("**citeseer**")
    readme = " ".join((PROJECT / "README.md").read_text().split())
    for name, half in (("Cora", halves[0]), ("CiteSeer", halves[2])):
        row = re.search(r"^\| dance \| 0\.08 \| ([^|]*) \| 5 \| ([^|]*) \|", half, re.M)
        assert re.search(rf"{row[1]} on {name}, where (?:the paper|it) reports {row[2]}", readme)
