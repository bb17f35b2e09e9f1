"""Clients that bring their own folder, as SuperNodes on separate machines do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.graphs import EVERY_ROUND

import client_app
import server_app
from dance_flwr.config.tree import flatten
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy.certificates import make_key
from dance_flwr.errors import UserError
from dance_flwr.federation.client import sent
from dance_flwr.federation.client.measured import read_measured
from dance_flwr.federation.secagg.signatures import fingerprint_of, load_key
from dance_flwr.federation.wire.keys import UP
from dance_flwr.pages.document import packed, unpacked
from dance_flwr.pages.statement import _BLOCK, Statement, read_sent
from dance_flwr.runs import privacy_report
from dance_flwr.runs.simulation.in_process import InProcessGrid


@pytest.fixture
def nodes(run_config, tmp_path):
    """Node configs of three clients, each with its folder copied to a place of its own."""
    prepared = prepare(run_config())
    for client in range(3):
        source, copy = prepared.folder / f"client-{client}", tmp_path / f"site-{client}" / "data"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("runs"))
    return {
        10 + client: {
            "partition-id": client,
            "data-path": str(tmp_path / f"site-{client}" / "data"),
        }
        for client in range(3)
    }


def run(config, nodes, folder):
    grid = InProcessGrid(client_app.app, flatten(config), nodes)
    server_app.run(grid, config, "own", folder)
    return json.loads((folder / "result.json").read_text())


def test_the_server_needs_no_data_and_the_result_is_that_of_a_simulation(
    run_config, nodes, tmp_path, dance
):
    """With a data root that does not exist and a data set that nobody can read, only the clients'
    folders count.
    """
    config = run_config(**EVERY_ROUND, data="not-here", data_root=str(tmp_path / "absent"))
    found = run(config, nodes, tmp_path / "out")
    assert not (tmp_path / "absent").exists()
    assert found["partition_dir"] is None
    assert found["model_fingerprint"] == dance.result["model_fingerprint"]
    for node in nodes.values():
        assert list((tmp_path / node["data-path"]).glob("runs/own/evidence/final.npz"))


def with_number(number):
    return lambda nodes: nodes[12].update({"partition-id": number})


def with_other_classes(nodes):
    card = Path(nodes[11]["data-path"]) / "client.json"
    content = json.loads(card.read_text())
    card.write_text(json.dumps(content | {"class_names": ["other", "names", "here"]}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_other_classes, "the same class names at all clients"),
        (lambda nodes: nodes[11].pop("data-path"), r"of every SuperNode or of none.*\[1\]"),
        (with_number(0), "two with partition-id=0"),
        # No number is rounded: 1.7 and true would be client 1.
        *(
            (with_number(number), f"from 0, found {number!r}; write .*--node-config")
            for number in ("north", "1", 1.7, True, -1)
        ),
    ],
)
def test_nodes_that_do_not_fit_together_are_refused(run_config, nodes, tmp_path, change, words):
    change(nodes)
    with pytest.raises(UserError, match=words) as refusal:
        run(run_config(), nodes, tmp_path / "out")
    assert "\n" not in str(refusal.value)


def test_the_records_of_all_sites_are_what_the_server_received(run_config, nodes, tmp_path):
    config = run_config(rounds=2, privacy_secure_aggregation=True)
    found = run(config, nodes, tmp_path / "out")
    sites = [read_sent(Path(node["data-path"])) for node in nodes.values()]
    totals = {}
    for line in (line for site in sites for line in site):
        assert line["run"] == "own"
        row = totals.setdefault((line["type"], line["stage"]), {"keys": {}, "count": 0, "bytes": 0})
        row["count"] += 1
        row["bytes"] += line["bytes"]
        for name, of in line["keys"].items():
            row["keys"][name] = sorted({*of, *row["keys"].get(name, ())})
    received = {
        (row["type"], row["stage"]): {name: row[name] for name in ("keys", "count", "bytes")}
        for row in found["messages"]
        if row["way"] == UP
    }
    assert totals == received and len(received) > 5
    # So are their digests, which a lost or an added answer changes.
    statements = [Statement("north", "hospitals", "own", lines) for lines in sites]
    assert {str(k): each.digest() for k, each in enumerate(statements)} == found["records"]
    assert replace(statements[0], lines=sites[0][:-1]).digest() != found["records"]["0"]
    assert f"client 0 {found['records']['0']}" in privacy_report.sentences(found)[-1]


def test_a_site_shows_what_left_it_signed_and_any_other_page_is_refused(
    run_config, nodes, tmp_path, cli, monkeypatch
):
    run(run_config(rounds=1), nodes, tmp_path / "out")
    make_key(tmp_path / "site-1" / "node.key")
    names = SimpleNamespace(site="north", federation="hospitals")
    site = SimpleNamespace(
        client_folder=tmp_path / "site-1" / "data", folder=tmp_path / "site-1", invitation=names
    )
    monkeypatch.setattr("dance_flwr.deploy.site.Site.open", lambda folder: site)
    done = cli("site", "privacy", "own")
    assert done.code == 0, done.err
    count = len(read_sent(site.client_folder))
    assert done.out.startswith(f"north sent {count} messages (")
    assert (
        "They held: model parameters, " in done.out
        and "No message has an entry for a text, an id, an edge" in done.out
    )
    page = tmp_path / "left.html"
    assert cli("site", "privacy", "--html", page).code == 0
    done = cli("site", "privacy", "--verify", page)
    key = load_key(tmp_path / "site-1" / "node.key").public_key()
    assert done.out.strip() == f"verified    north of hospitals, run own, key {fingerprint_of(key)}"
    text = page.read_text()
    assert text.count("<tr>") > count  # every message has a row
    record = json.dumps(unpacked(_BLOCK.search(text)[1]))
    for other in (
        text.replace("north sent", "north never sent"),
        text.replace(_BLOCK.search(text)[1], packed(json.loads(record.replace("own", "owm")))),
        "<html></html>",
    ):
        assert other != text
        page.write_text(other)
        done = cli("site", "privacy", "--verify", page)
        assert done.code == 2 and "expected a page of `dance-flwr site privacy`" in done.err[-1]
    done = cli("site", "privacy", "another")
    assert done.code == 2 and "expected run 'another' in the record, found own" in done.err[-1]


def test_a_record_has_a_bound_and_what_does_not_fit_does_not_leave(
    run_config, nodes, tmp_path, monkeypatch
):
    monkeypatch.setattr(sent, "MAX_BYTES", 2000)
    record = tmp_path / "site-0" / "data" / "runs" / sent.FILE
    with pytest.raises(UserError, match=r"expected a record of at most 2,000 bytes, found 1,") as e:
        run(run_config(rounds=3), nodes, tmp_path / "out")
    assert 1000 < record.stat().st_size <= 2000 and "move it elsewhere" in str(e.value)
    for site in range(3):  # what the message says, and the run goes on
        (tmp_path / f"site-{site}" / "data" / "runs" / sent.FILE).rename(tmp_path / f"kept-{site}")
    monkeypatch.setattr(sent, "MAX_BYTES", 10_000)
    again = run_config(rounds=3, resume=True, out=str(tmp_path / "out"))
    assert len(run(again, nodes, tmp_path / "out")["history"]) == 3


def test_a_reply_that_cannot_be_recorded_does_not_leave(run_config, nodes, tmp_path):
    path = tmp_path / "site-0" / "data" / "runs"
    path.write_text("a file where the record's folder should be")
    with pytest.raises(UserError, match=r"node 10: .* FileExistsError"):
        run(run_config(rounds=1), nodes, tmp_path / "out")


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_run_under_noise_ends_at_a_site_with_its_own_accuracy_and_its_largest_class(
    run_config, nodes, tmp_path, cli, monkeypatch, caplog, mode
):
    noise = {"privacy_dp": mode, "privacy_noise_multiplier": 1.0, "privacy_epsilon": 500.0}
    noise["privacy_secure_aggregation"] = mode == "distributed"
    with caplog.at_level("INFO", "flwr"):
        found = run(run_config(rounds=1, **noise), nodes, tmp_path / "out")
    assert found["test_accuracy"] is None
    own = [str(read_measured(Path(node["data-path"]), "own")) for node in nodes.values()]
    said = [m for m in caplog.messages if m.startswith("the final model at this site: ")]
    assert sorted(said) == sorted(f"the final model at this site: {each}" for each in own)
    assert all("if all were called" in each for each in own)
    make_key(tmp_path / "site-1" / "node.key")
    names = SimpleNamespace(site="north", federation="hospitals")
    site = SimpleNamespace(
        client_folder=tmp_path / "site-1" / "data", folder=tmp_path / "site-1", invitation=names
    )
    monkeypatch.setattr("dance_flwr.deploy.site.Site.open", lambda folder: site)
    assert f"measured    {own[1]}" in cli("site", "privacy").out
    page = tmp_path / "left.html"
    assert cli("site", "privacy", "--html", page).code == 0
    # The page is for others, who may not know it.
    assert "if all were called" not in page.read_text()
    # What the server accounts for, too.
    spent = f"spent epsilon {found['privacy']['epsilon']:.4g} at delta"
    assert spent in " ".join(cli("site", "privacy").out.split())


def test_every_answer_names_the_terms_that_allowed_it(run_config, nodes, tmp_path):
    for node in nodes.values():
        node |= {"max-rounds": 5, "max-trainings": 9, "secure-aggregation": True}
    config = run_config(rounds=1, privacy_secure_aggregation=True, out="/of/the/server/runs/first")
    run(config, nodes, tmp_path / "out")
    lines = read_sent(Path(nodes[10]["data-path"]), "first")
    assert lines == read_sent(Path(nodes[10]["data-path"]), "own")
    allowed = {(line["type"], line["stage"] != ""): line["allowed"] for line in lines}
    masks = "secure-aggregation = True"
    assert allowed["train", True] == f"max-rounds = 5, max-trainings = 9, {masks}"
    assert allowed["evaluate", True] == f"max-rounds = 5, max-trainings = 9, {masks}"
    assert allowed["query.hello", False] == ""
    statement = Statement("north", "hospitals", "first", lines)
    assert {row[-2] for row in statement.rows()} >= set(allowed.values())
