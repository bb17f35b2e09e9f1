"""The page of a run: the numbers of its record, and nothing from elsewhere."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from support.graphs import WORDS, node_id, sentences, text_graph

from dance_flwr.config.paths import COMPARED
from dance_flwr.errors import UserError
from dance_flwr.pages.run_page import report_run
from dance_flwr.pages.run_sections import accuracy_chart, measured
from dance_flwr.runs.locks import SERVER, exclusive
from dance_flwr.runs.result import write_result
from dance_flwr.runs.run import read_run
from dance_flwr.runs.simulation.in_process import run_in_process

ASKING = {"src", "srcset", "data", "action", "formaction", "poster", "ping", "background"}


class Parsed(HTMLParser):
    """Elements, attributes, tables by caption and the text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.tables = [], [], {}
        self.text, self.caption, self.row, self.cell = "", None, [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in ("caption", "th", "td"):
            self.cell = ""
        elif tag == "tr":
            self.row = []

    def handle_endtag(self, tag):
        if tag == "caption":
            self.caption, self.cell = self.cell, None
            self.tables[self.caption] = []
        elif tag in ("th", "td"):
            self.row.append(self.cell)
            self.cell = None
        elif tag == "tr":
            self.tables[self.caption].append(self.row)

    def handle_data(self, data):
        self.text += data
        if self.cell is not None:
            self.cell += data

    def table(self, start):
        (rows,) = [rows for caption, rows in self.tables.items() if caption.startswith(start)]
        return rows[1:]


def page_of(folder, **options):
    report_run(folder, page=folder / "page.html", log=lambda line: None, **options)
    return (folder / "page.html").read_text("utf-8")


@pytest.fixture(scope="module")
def html(dance):
    (dance.folder / COMPARED).unlink(missing_ok=True)  # of other tests
    return page_of(dance.folder)


@pytest.fixture(scope="module")
def parsed(html):
    return Parsed(html)


def test_the_page_asks_for_nothing(html, parsed):
    assert not ASKING & {name for _, name, _ in parsed.attributes}
    links = [value for _, name, value in parsed.attributes if name in ("href", "xlink:href")]
    assert links and all(link.startswith("#") for link in links)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(parsed.tags)
    assert "default-src &#39;none&#39;" in html and 'http-equiv="refresh"' not in html
    assert not re.search(r"url\(|@import|https?://", html)
    assert not any(name == "style" for _, name, _ in parsed.attributes)


def test_numbers_are_those_of_the_record(dance, parsed):
    result, history = dance.result, dance.result["history"]
    right = round(result["test_accuracy"] * result["test_nodes"])
    assert f"{right} of {result['test_nodes']} test nodes right; 95 % interval" in parsed.text
    rounds = parsed.table("Numbers of each round")
    assert [(row[0], row[1], row[-4]) for row in rounds] == [
        (str(r["round"]), f"{100 * r['val_accuracy']:.1f} %", f"{100 * r['val_macro_f1']:.1f} %")
        for r in history
    ]
    assert [float(row[-3]) for row in rounds] == pytest.approx(
        [row["loss"] for row in history], rel=1e-5
    )
    sent = parsed.table("Bytes of models")
    for client in range(3):
        down, up = (sum(r[w][str(client)] for r in history) for w in ("bytes_down", "bytes_up"))
        assert sent[client] == [f"client {client}", f"{down:,}", f"{up:,}", "0"]
    own = parsed.table("Accuracy of the final model by client")
    assert [row[4] for row in own] == [
        measured(r["test_accuracy"], r["test_nodes"]) for r in result["clients"]
    ]
    for text in (result["model_fingerprint"], result["provenance"], result["run"]):
        assert any(row[1] == text for row in parsed.table("Fingerprints"))
    assert "What a client of dance sends: model parameters, counts, seconds" in parsed.text
    keys = dict(row[:2] for row in parsed.table("Configuration"))
    assert keys["rounds"] == "3" and "lr" not in keys  # which has its default


def test_the_answer_is_beside_the_largest_class(dance, html, parsed):
    nodes, names = dance.result["test_by_class"]["nodes"], dance.result["class_names"]
    rows, test_nodes = parsed.table("Half a 95 % interval"), dance.result["test_nodes"]
    answer = measured(dance.result["test_accuracy"], test_nodes)
    largest = f"every node called {names[nodes.index(max(nodes))]}, the largest class"
    assert [row[0] for row in rows] == ["dance, this run", largest]
    assert [row[1] for row in rows] == [answer, f"{100 * max(nodes) / sum(nodes):.0f} %"]
    first = html[: html.index("<nav")]
    assert f'<strong class="score">{answer}</strong>' in first and "<details" not in first
    assert "<code>dance-flwr run --compare local-only</code>" in first


def test_a_test_accuracy_has_no_digit_that_its_nodes_cannot_show():
    assert measured(309 / 351, 351) == "88.0 % ± 3.4"
    assert measured(39 / 47, 47) == "83 % ± 11"
    assert measured(0.0, 4) == "0 % [0, 49]" and measured(1.0, 200) == "100.0 % [98.1, 100.0]"
    assert measured(None, 0) == measured(0.5, 0) == "-"


def test_compared_runs_are_open_beside_the_answer(dance, reference, tmp_path):
    others = [reference(method=method) for method in ("fedavg-full", "local-only")]
    report_run(
        dance.folder, [o.folder for o in others], page=tmp_path / "p.html", log=lambda line: None
    )
    html = (tmp_path / "p.html").read_text("utf-8")
    rows = Parsed(html).table("Half a 95 % interval")
    assert rows[0][0] == "dance, this run"
    for row, other, name in zip(
        rows[1:3], others, ("fedavg-full", "each client alone, local-only"), strict=True
    ):
        result = other.result
        assert row[0] == name and "points)" in row[2]
        assert row[1] == measured(result["test_accuracy"], result["test_nodes"])
    # Each client alone stands beside the same client in the run.
    clients = Parsed(html).table("Accuracy of the final model by client")
    assert [row[5] for row in clients] == [
        measured(r["test_accuracy"], r["test_nodes"]) for r in others[1].result["clients"]
    ]
    assert "--compare local-only" not in html


def test_clients_of_other_data_are_not_the_same_clients(dance, reference, tmp_path):
    other = reference(method="local-only", seed=5)
    (dance.folder / COMPARED).unlink(missing_ok=True)  # of other tests
    report_run(dance.folder, [other.folder], page=tmp_path / "p.html", log=lambda line: None)
    parsed = Parsed((tmp_path / "p.html").read_text("utf-8"))
    assert "found one on other data" in parsed.text
    assert {len(row) for row in parsed.table("Accuracy of the final model by client")} == {5}


def test_sites_have_their_names(run, tmp_path):
    from dance_flwr.data.graphs.folder import write_folder

    rng, count = np.random.default_rng(3), 72
    labels = np.arange(count) % 3
    texts = [sentences(rng, WORDS[sorted(WORDS)[label]], 2) for label in labels]
    pairs = np.array([(i, (i + 3) % count) for i in range(count - 3)])
    graph = text_graph("sited", [node_id(i) for i in range(count)], texts, labels, pairs)
    sites = np.array(["north & south", "lmu", "charite"])[np.arange(count) // 24]
    write_folder(replace(graph, site=sites), tmp_path / "sited")
    finished = run(data=str(tmp_path / "sited"), partition="by-column", rounds=1)
    parsed = Parsed(page_of(finished.folder))
    names = ["charite (client 0)", "lmu (client 1)", "north & south (client 2)"]
    assert [row[0] for row in parsed.table("Accuracy of the final model by client")] == names
    assert [row[0] for row in parsed.table("Bytes of models")] == [*names, "all"]


def test_sites_of_a_federation_have_their_names(dance, tmp_path):
    from dance_flwr.config.tree import parse
    from dance_flwr.deploy.federation import create

    config = parse({"encoder": dance.config.encoder})
    classes, sites = dance.result["class_names"], ("aachen", "bonn", "jena")
    federation = create(tmp_path / "hospitals", ("127.0.0.1",), classes, sites, {}, config)
    folder = federation.folder / "runs" / "first"
    shutil.copytree(dance.folder, folder)
    rows = Parsed(page_of(folder)).table("Bytes of models by client")
    names = ["aachen (client 0)", "bonn (client 1)", "jena (client 2)", "all"]
    assert [row[0] for row in rows] == names


def points_of(path):
    return [tuple(map(float, pair.split())) for pair in path[1:-2].split("L")]


def test_the_curve_goes_through_the_accuracies_of_the_rounds(dance, reference, html):
    rounds = [(r["round"], 100 * r["val_accuracy"]) for r in dance.result["history"]]
    runs = [read_run(one.folder) for one in (dance, reference(method="fedavg-full"))]
    chart = accuracy_chart(runs)
    assert [*chart.lines] == ["dance", "fedavg-full"]
    for (x, y), (round_, accuracy) in zip(points_of(chart.lines["dance"]), rounds, strict=True):
        assert x == round_ and 100 - y == pytest.approx(accuracy, abs=0.01)
    assert (chart.first, chart.last) == (1, 3) and chart.low % 10 == chart.high % 10 == 0
    assert all(chart.low <= y <= chart.high for _, y in rounds)
    assert html.count('<svg role="img"') == 1 and " 100 - " not in html
    runs[0].rows[:] = runs[1].rows[:] = []
    assert accuracy_chart(runs) is None


def test_names_of_classes_are_text(hostile, tmp_path):
    report_run(hostile.folder, page=tmp_path / "page.html", log=lambda line: None)
    parsed = Parsed((tmp_path / "page.html").read_text("utf-8"))
    names = hostile.result["class_names"]
    assert "<i>astronomy</i>" in names and any("-->" in name for name in names)
    assert [row[0] for row in parsed.table("Test nodes by class")] == names
    assert not {"i", "b", "img"} & set(parsed.tags)
    assert parsed.tags.count("script") == 1  # of the shell


def test_sums_alone_are_shown_as_such(reference):
    finished = reference(rounds=1, method="fedavg-full", privacy_secure_aggregation=True)
    html = page_of(finished.folder)
    assert "under secure aggregation the server reads sums" in html
    assert 'id="clients"' not in html  # a sentence, and no part of it


def test_the_budget_spent_is_shown_by_round(run):
    finished = run(
        **{"rounds": 2, "method": "fedavg-full", "privacy_dp": "central", "privacy_seeded": True},
        **{"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0},
    )
    rows = Parsed(page_of(finished.folder)).table("Numbers of each round")
    history = finished.result["history"]
    assert [float(row[-1]) for row in rows] == pytest.approx([r["epsilon"] for r in history], 1e-5)


class Killed(BaseException):
    """Like the end of a process, no `except Exception` catches it."""


def test_a_run_that_was_killed_says_how_far_it_came(run_config, tmp_path, cli):
    folder, seen = tmp_path / "run", []

    def look(row):
        seen.append(page_of(folder))
        if row["round"] == 2:
            raise Killed

    config = run_config(out=str(folder), method="fedavg-full")
    with exclusive(folder, SERVER), pytest.raises(Killed):
        run_in_process(config, folder, look)
    for number, html in enumerate(seen, start=1):
        assert f'value="{number}">{number} of 3</progress>' in html and "time left" in html
        assert "s a round" in html
        assert len(Parsed(html).table("Numbers of each round")) == number
    done = cli("report", folder, "--html")
    assert done.code == 0 and "run interrupted, 2 rounds" in done.out
    html = (folder / "report.html").read_text("utf-8")
    assert "interrupted" in html and f"dance-flwr run --resume {folder}" in html
    assert "time left" not in html


def test_what_is_no_run_is_one_line(cli, tmp_path, dance):
    (tmp_path / "study" / "grids").mkdir(parents=True)
    for arguments, expected in (
        ((tmp_path / "study", "--html"), "found that of a study"),
        ((tmp_path, "--html"), "expected the folder of a run"),
        ((dance.folder, "--out", "x.html"), "expected --html for a page"),
    ):
        done = cli("report", *arguments)
        assert done.code == 2 and len(done.err) == 1 and expected in done.err[0], arguments
    other = tmp_path / "notes.html"
    other.write_text("mine")
    done = cli("report", dance.folder, "--html", "--out", other)
    assert done.code == 2 and other.read_text() == "mine"
    with pytest.raises(UserError, match=r"result\.json"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "result.json").write_text("{")
        report_run(tmp_path / "run", page=tmp_path / "page.html")


def altered(finished, folder, clients, **total):
    """Copy a run with other scores of its clients; return its page and the table of clients."""
    result = dict(finished.result, **total)
    result["clients"] = [
        row | own for row, own in zip(finished.result["clients"], clients, strict=True)
    ]
    shutil.copytree(finished.folder, folder)
    write_result(folder, result)
    html = page_of(folder)
    return html, Parsed(html).table("Accuracy of the final model by client")


def test_a_client_without_nodes_has_no_score(dance, tmp_path):
    clients = [
        {"test_nodes": 0, "test_accuracy": None, "val_nodes": 4, "val_accuracy": 0.25},
        {"test_nodes": 4, "test_accuracy": 0.75, "val_nodes": 0, "val_accuracy": None},
        {"test_nodes": 4, "test_accuracy": 0.5, "val_nodes": 4, "val_accuracy": 0.0},
    ]
    html, rows = altered(dance, tmp_path / "run", clients)
    expected = [["25 %", "-"], ["-", "75 % [30, 95]"], ["0 %", "50 % ± 35"]]
    assert [row[3:5] for row in rows] == expected
    assert "The lowest test accuracy is 50 % ± 35, of client 2." in html
