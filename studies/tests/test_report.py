"""Tables and figures: compared with hand computations, the paper, and empty where no result is."""

import csv
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
from dance_flwr_studies import EXPERIMENTS, get_experiment
from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.engine.folder import FACTS, Study, settings_of
from dance_flwr_studies.engine.rows import Rows, load_rows
from dance_flwr_studies.protocols.main_table import RIVALS
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports.report import export_into, insert, write_report
from dance_flwr_studies.reports.tables import NOTHING, groups, markdown
from dance_flwr_studies.reports.verdicts import UNTESTED
from study_support.rows import cells_of, facts_of, result_of, row_of, table_rows

from dance_flwr.config.tree import parse
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError


def fill(study, name, accuracies, **request):
    """Write the files of an experiment's runs; cells beyond the accuracies stay missing."""
    cells = cells_of(name, **request)
    for cell, accuracy in zip(cells, accuracies, strict=False):
        folder = study.run_folder(cell.config)
        write_json(folder / "result.json", result_of(cell.config, accuracy))
        write_json(folder / FACTS, facts_of(cell.config))
    study.remember(name, f"dance-flwr experiment {name}", cells)


@pytest.fixture
def study(tmp_path):
    study = Study(tmp_path / "study")
    fill(study, "main-table", [0.88, 0.9, 0.89, 0.86], methods=("dance", "fedavg-full"))
    fill(study, "ablation", [0.88, 0.9, 0.89, 0.8, 0.82])
    fill(study, "convergence", [0.88, 0.9, 0.89], methods=("dance", "fedavg-full"))
    return study


def test_the_main_table_is_the_hand_computed_one():
    cells = cells_of("main-table", methods=("dance", "fedavg-full"))
    values = [0.88, 0.9, None, *([None] * 6), 0.8, 0.81, 0.84]
    section = get_experiment("main-table").render(
        [row_of(c, v) for c, v in zip(cells, values, strict=True)]
    )
    (scores,) = table_rows(section, "dance | 0.08")
    # (88 + 90) / 2 and |90 - 88| / sqrt(2); the paper prints 88.87 +- 0.43
    assert scores == ["dance", "0.08", "89.00 ± 1.41 (2 of 3)", "88.87 ± 0.43"]
    (scores,) = table_rows(section, "fedavg-full | full")
    percent = [80.0, 81.0, 84.0]
    assert scores[2] == f"{mean(percent):.2f} ± {stdev(percent):.2f}"
    assert scores[3] == "82.45 ± 0.35"
    # (3 + 3) / 2 nodes per client, 2.5 of each supervised; (1000 + 3000) / 2 bytes up
    costs = table_rows(section, "dance")[-1]
    assert costs[:3] == ["dance", "7.5 (2 of 3)", "2.0 (2 of 3)"]
    # (18 + 12) / 2 labelled nodes
    assert table_rows(section, "fedavg-full")[-1][:3] == ["fedavg-full", "15.0", "2.0"]


def test_dance_is_compared_with_all_that_was_asked_for_but_where_the_five_and_more_ran():
    def compared(*methods):
        asked = {"methods": ("dance", *methods), "seeds": (0, 1), "ratios": (0.08,)}
        cells = cells_of("main-table", **asked)
        section = get_experiment("main-table").render([row_of(cell, 0.5) for cell in cells])
        table = next(part for part in section.parts if part.startswith("| cora: DANCE minus"))
        names = [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]]
        return names, "ahead in earlier runs" in str(section.parts)

    others = ("local-only", "ditto", "fedper", "self-training", "fedavg-full", "fedgta")
    found, is_named = compared(*others)
    assert {*found} == {*others} and not is_named
    found, is_named = compared("local-only", *RIVALS)
    assert {*found} == {*RIVALS} and is_named


def test_lines_and_columns_without_a_value_are_left_out():
    lines = [["a", "1", NOTHING, ""], ["b", NOTHING, f"{NOTHING}/{NOTHING}", ""], ["", "", "", ""]]
    assert markdown(["name", "x", "y", "z"], lines) == "| name | x |\n| --- | ---: |\n| a | 1 |"
    assert markdown(["name", "r", "y"], [["b", "0.5", NOTHING]], 2) == ""
    assert markdown(["name", "r", "y"], [["b", "0.5", "0.0"]], 2).endswith("| b | 0.5 | 0.0 |")
    assert markdown(["name", "x"], [["a|b", "1"]]).splitlines()[2] == "| a\\|b | 1 |"


READING = ("text-pooling", "edge-gates", "class-prior")


def older(row, keys=READING):
    """The row as of a version that did not know these keys."""
    return replace(row, config={k: v for k, v in row.config.items() if k not in keys})


def ablation_rows(accuracies):
    """Rows of the ablation, one accuracy per seed by variant, in the order of `cells_of`."""
    cells = cells_of("ablation")
    return [row_of(c, accuracies[c.labels["variant"]][c.labels["seed"]]) for c in cells]


ACCURACIES = {
    "full": (0.9, 0.8, 0.7),
    "w/o TGR": (0.89, 0.79, 0.69),
    "w/o TC": (0.88, 0.78, 0.68),
    "w/o NC": (0.87, 0.77, 0.67),
    "w/o labels": (0.86, 0.76, 0.66),
    "random labelled core": (0.85, 0.75, 0.65),
    "covering core": (0.84, 0.74, 0.64),
}


def test_an_ablation_is_not_compared_with_a_full_method_of_older_code(tmp_path):
    """Older rows of "full" and "w/o TGR" before all rows of today: each with its own."""
    before = {name: tuple(value - 0.2 for value in ACCURACIES[name]) for name in ACCURACIES}
    before["w/o TGR"] = (0.66, 0.56, 0.46)
    rows = [older(r) for r in ablation_rows(before) if r.labels["variant"] in ("full", "w/o TGR")]
    rows += [r for r in ablation_rows(ACCURACIES) if r.labels["variant"] != "w/o TGR"]
    section = get_experiment("ablation").render(rows)
    (was,) = table_rows(section, "w/o TGR (older than class-prior, edge-gates, text-pooling)")
    assert was[1] == "56.00 ± 10.00" and was[2] == "-4.00 ± 0.00", "against the older full"
    (today,) = table_rows(section, "w/o labels")
    assert today[2] == "-4.00 ± 0.00", "against today's full"
    assert not table_rows(section, "full"), "two groups of one name are noted"
    alone = [r for r in rows if r.labels["variant"] != "full" or "class-prior" in r.config]
    (was,) = table_rows(
        get_experiment("ablation").render(alone),
        "w/o TGR (older than class-prior, edge-gates, text-pooling)",
    )
    assert was[2] == "", "no full method of its version"


def test_compared_rows_with_other_settings_say_so():
    plain = cells_of("main-table", methods=("fedavg-full",), overrides={"ema-decay": 0.0})
    smooth = cells_of(
        "main-table",
        methods=("dance",),
        overrides={"smoothing": "correct-and-smooth", "ema-decay": 0.9},
    )
    section = get_experiment("main-table").render([row_of(cell, 0.5) for cell in [*plain, *smooth]])
    assert table_rows(section, "fedavg-full (ema-decay=0.0, smoothing=none) | full")
    assert table_rows(section, "dance (ema-decay=0.9, smoothing=correct-and-smooth) | 0.08")
    alike = [row_of(cell, 0.5) for cell in cells_of("main-table", methods=("fedavg-full", "dance"))]
    assert table_rows(get_experiment("main-table").render(alike), "fedavg-full | full")


def test_what_a_method_prefers_is_no_note_and_what_it_does_not_is():
    """DANCE and fedavg-full read texts differently, each as it prefers; gcond is asked to."""
    asked = {"text-pooling": "agreement"}
    cells = cells_of("main-table", methods=("dance", "fedavg-full"))
    rows = [row_of(cell, 0.5) for cell in cells if "variant" not in cell.labels]
    assert {g.note for g in groups(rows)} == {""}
    other = cells_of("main-table", methods=("gcond",), ratios=(0.08,), overrides=asked)
    found = {g.labels["method"]: g.note for g in groups([*rows, *(row_of(c, 0.5) for c in other)])}
    assert found == {"dance": "", "fedavg-full": "", "gcond": "text-pooling=agreement"}


def test_seeds_with_other_settings_are_never_averaged():
    few = cells_of("main-table", methods=("fedavg-full",), seeds=(0, 1), rounds=3)
    rows = [row_of(cell, 0.2) for cell in few]
    rows += [
        row_of(cell, 0.8) for cell in cells_of("main-table", methods=("fedavg-full",), seeds=(2, 3))
    ]
    found = groups(rows)
    assert [(g.note, g.stat("test_accuracy").mean) for g in found] == [
        ("rounds=3", 0.2),
        ("rounds=60", 0.8),
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rows_without_a_result_show_no_number_and_test_no_claim(name, tmp_path):
    """They give tables of dashes, and pictures that can be drawn."""
    experiment = get_experiment(name)
    # The paper prints nothing for this data set.
    cells = cells_of(name, datasets=("tiny",), seeds=(0, 1))
    rows = [Row(name, c.labels, "", {} if c.measure else settings_of(c.config)) for c in cells]
    section = write_report(Rows({name: rows}, {}), tmp_path, print)[name]
    labels = {str(value) for cell in cells for value in cell.labels.values()}
    for part in (part for part in section.parts[2:] if isinstance(part, str)):
        for line in (line for line in part.splitlines()[1:] if line.startswith("|")):  # no heading
            words = [word.strip() for word in line.strip("|").split("|")]
            assert not [
                w for w in words if "±" in w or (re.search(r"\d\.\d", w) and w not in labels)
            ], line
    before, after = (tmp_path / "report.md").read_text().split(experiment.question)
    if before.endswith("Question: "):
        assert experiment.verdict is None
    else:
        assert before.endswith("Claim tested: ")
        assert after.startswith(f"\n\nIn these rows: **{UNTESTED}**")
    assert not list(tmp_path.glob("*.csv")) + list(tmp_path.glob("*.png"))


def test_a_report_of_the_exported_rows_is_that_of_the_folder(study, tmp_path):
    file = tmp_path / "rows.jsonl"
    export_into(study.root, file, print)
    write_report(load_rows(study.root), tmp_path / "a", print)
    write_report(load_rows(file), tmp_path / "b", print)
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert {Path("report.md"), Path("ablation.md"), Path("figures/convergence-cora.svg")} <= set(
        names
    )
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert "[Ablation](ablation.md)" in (tmp_path / "a" / "report.md").read_text()
    text = (tmp_path / "a" / "ablation.md").read_text()
    assert "3 of 3" not in text and "2 of 3" in text and "dance-flwr experiment ablation" in text


def test_exported_rows_are_small_hold_no_paths_and_one_line_per_run(study, tmp_path):
    file = tmp_path / "rows.jsonl"
    export_into(study.root, file, print)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    runs = [line for line in lines if line["kind"] == "run"]
    assert len({run["id"] for run in runs}) == len(runs)
    shared = next(run for run in runs if len(run["uses"]) == 3)
    assert {use["experiment"] for use in shared["uses"]} == {
        "main-table",
        "ablation",
        "convergence",
    }
    assert shared["result"]["val_accuracy_by_round"] and str(tmp_path) not in file.read_text()
    assert all(len(json.dumps(run)) < 2500 for run in runs)


def test_an_updated_export_keeps_other_cells_and_replaces_its_own(tmp_path):
    file, first, second = (
        tmp_path / "rows.jsonl",
        Study(tmp_path / "first"),
        Study(tmp_path / "second"),
    )
    fill(first, "ablation", [0.5] * 21)
    fill(first, "refresh-study", [0.25] * 12)
    fill(second, "ablation", [0.75] * 7, seeds=(0,), rounds=9)
    export_into(first.root, file, print)
    kept = load_rows(file).by_experiment["refresh-study"]
    export_into(second.root, file, print, update=True)
    merged = load_rows(file)
    found = {
        (row.labels["variant"], row.labels["seed"]): row for row in merged.by_experiment["ablation"]
    }
    assert (
        len(found) == 21 and sum(row.result["test_accuracy"] == 0.75 for row in found.values()) == 7
    )
    assert all(
        (row.result["test_accuracy"] == 0.75) == (seed == 0) for (_, seed), row in found.items()
    )
    assert merged.by_experiment["refresh-study"] == kept
    assert len(
        {line["id"] for line in map(json.loads, file.read_text().splitlines()) if "id" in line}
    ) == 7 + len(
        {row.name for row in kept} | {row.name for (_, seed), row in found.items() if seed}
    )


def test_commands_of_merged_exports_are_in_the_order_in_which_they_were_run(tmp_path):
    """Each once; a repeated one moves behind those of the file."""
    file, cells = tmp_path / "rows.jsonl", cells_of("ablation", seeds=(0,))
    for name, commands in (("a", "12"), ("b", "3"), ("c", "245")):
        study = Study(tmp_path / name)
        for command in commands:
            study.remember("ablation", command, cells)
        export_into(study.root, file, print, update=True)
    assert load_rows(file).commands["ablation"] == ["1", "3", "2", "4", "5"]


def older_rows(tmp_path, method, key):
    """Rows of two versions in one file: seeds 3 and 4 were made before `key` existed."""
    file, first, second = (
        tmp_path / "rows.jsonl",
        Study(tmp_path / "first"),
        Study(tmp_path / "second"),
    )
    fill(first, "main-table", [0.5] * 2, methods=(method,), seeds=(3, 4), ratios=(0.08,))
    fill(second, "main-table", [0.75] * 2, methods=(method,), seeds=(0, 1), ratios=(0.08,))
    for path in first.runs.glob("*/result.json"):
        result = json.loads(path.read_text())
        del result["config"][key]
        write_json(path, result)
    export_into(first.root, file, print)
    export_into(second.root, file, print, update=True)
    return file


@pytest.mark.parametrize(
    ("method", "key"), [("fedavg-full", "smoothing"), ("gcond", "condense.steps")]
)
def test_rows_keep_only_the_keys_that_they_were_made_with(tmp_path, method, key):
    """An older row has no value for a later key, and is not averaged with rows that have one."""
    value = settings_of(parse({"method": method}))[key]
    file = older_rows(tmp_path, method, key)
    today, older = groups(load_rows(file).by_experiment["main-table"])
    assert [(g.note, g.stat("test_accuracy").mean) for g in (today, older)] == [
        (f"{key}={value}", 0.75),
        (f"older than {key}", 0.5),
    ]
    assert older.rows[0].config.keys() == today.rows[0].config.keys() - {key}
    assert older.rows[0].config["rounds"] == today.rows[0].config["rounds"]
    again = tmp_path / "again.jsonl"
    again.write_text(file.read_text())
    export_into(tmp_path / "second", again, print, update=True)
    assert load_rows(again) == load_rows(file), "repeating an update changes nothing"


def test_into_replaces_what_is_between_the_markers(study, tmp_path):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    curves = "<!-- begin convergence -->\n<!-- end convergence -->\n"
    page.write_text(f"before\n<!-- begin ablation -->\nold\n<!-- end ablation -->\n{curves}after\n")
    sections = write_report(load_rows(study.root), tmp_path / "docs" / "out", print)
    for _ in range(2):  # a second time changes nothing
        insert(sections, tmp_path / "docs" / "out", page, print)
        text = page.read_text()
        assert text.startswith("before\n<!-- begin ablation -->\n") and text.endswith(
            "<!-- end convergence -->\nafter\n"
        )
        assert "old" not in text and text.count("w/o TGR |") == 1
        assert "(out/figures/convergence-cora.png)" in text
    page.write_text("nothing\n")
    with pytest.raises(UserError, match="<!-- begin main-table -->"):
        insert(sections, tmp_path / "docs" / "out", page, print)
    with pytest.raises(UserError, match="expected a Markdown file"):
        insert(sections, tmp_path / "docs" / "out", tmp_path / "missing.md", print)


def test_a_report_has_the_scores_of_every_finished_run(tmp_path):
    """Also of a data set whose name a spreadsheet would compute."""
    study, out = Study(tmp_path / "study"), tmp_path / "study" / "report"
    asked = {"datasets": ("=1+1",), "methods": ("fedavg-full", "dance"), "seeds": (0, 1)}
    fill(study, "main-table", [1 / 3, 0.82, 0.9], ratios=(0.08,), **asked)
    lines = []
    write_report(load_rows(study.root), out, lines.append)
    assert lines == [f"report      {out / 'report.md'}: 1 experiment"]
    assert {path.name for path in out.iterdir()} == {"report.md", "main-table.md", "main-table.csv"}
    assert "(main-table.csv)" in (out / "report.md").read_text()
    rows = list(csv.DictReader((out / "main-table.csv").open()))
    assert [(row["method"], row["seed"]) for row in rows] == [
        *(("fedavg-full", "0"), ("fedavg-full", "1"), ("dance", "0"))
    ]
    assert float(rows[0]["accuracy"]) == 1 / 3 and rows[0]["dataset"] == "'=1+1"
    assert float(rows[0]["macro-F1"]) == 1 / 3 - 0.1 and rows[0]["settings"] == ""


def test_paper_numbers_are_all_there():
    path = Path(paper.__file__).with_name("paper_numbers.toml")
    numbers = tomllib.loads(path.read_text())["main"]
    flat = [value for rows in numbers.values() for row in rows.values() for value in row.values()]
    assert len(numbers) == 8 and len(flat) == 8 * (6 + 3 * 6) and flat.count("OOT") == 10
    assert paper.main_number("cora", "dance", 0.02) == (86.32, 0.66)
    assert paper.main_number("reddit", "fedavg-full", None) == (59.22, 0.45)
    assert paper.main_number("arxiv2023", "fedsage-plus", None) is None
    assert paper.main_number("arxiv2023", "fedsage+", None) == "OOT"
    assert paper.main_number("instagram", "gcond", 0.005) == (65.84, 0.58)
    assert paper.main_ratios("children") == (0.01, 0.006, 0.004) and paper.main_ratios("mine") == (
        0.08,
        0.04,
        0.02,
    )
    assert paper.ablation_number("citeseer", "w/o NC", "macro_f1") == (65.44, 0.95)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (None, "expected a study folder or a .jsonl file"),
        ("no json", "expected rows that dance-flwr tables --export wrote"),
        ("[1]", "expected rows that"),
        ("", "expected rows of an experiment, found none"),
    ],
)
def test_what_is_no_study_is_refused_in_one_line(cli, tmp_path, write, message):
    file = tmp_path / "rows.jsonl"
    if write is not None:
        file.write_text(write)
    done = cli("tables", file)
    assert done.code == 2 and len(done.err) == 1 and message in done.err[0]
