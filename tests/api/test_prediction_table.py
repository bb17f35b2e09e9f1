"""A model that is handed on: what a bundle holds, and predictions of nodes that are new to it."""

import json
import re
import shutil

import pyarrow.parquet as pq
import pytest
import torch

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.predicting import (
    open_data,
    predict_proba,
    show_node,
)
from dance_flwr.api.prediction_table import predict, verify
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.errors import UserError
from dance_flwr.evidence.json_lines import _compare
from dance_flwr.federation.client.client import open_client
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.result import load_model


def quiet(line):
    pass


@pytest.fixture(scope="module", params=["none", "correct-and-smooth"])
def finished(request, run):
    return run(clients=3, rounds=3, smoothing=request.param)


@pytest.fixture(scope="module")
def bundle(finished, tmp_path_factory):
    return export(finished.folder, tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture
def data(finished, tmp_path):
    """A folder with the nodes of client 2, without labels."""
    source, folder = finished.partition / "client-2", tmp_path / "site"
    folder.mkdir()
    pq.write_table(
        pq.read_table(source / "nodes.parquet").select(["id", "text"]), folder / "nodes.parquet"
    )
    shutil.copyfile(source / "edges.parquet", folder / "edges.parquet")
    return folder


def test_a_bundle_holds_nothing_of_the_clients(finished, bundle):
    names = {path.name for path in bundle.folder.iterdir()}
    assert names == {"bundle.json", "federation.toml", "model.safetensors", "README.md"}
    graph = read_folder(finished.partition / "client-0")
    for path in bundle.folder.iterdir():
        content = path.read_bytes()
        assert not any(text.encode() in content for text in graph.texts if text)
        assert str(finished.partition).encode() not in content
    card = (bundle.folder / "README.md").read_text("utf-8")
    assert bundle.model_id in card and f"{bundle.facts['test_accuracy']:.4f}" in card


@pytest.mark.parametrize("client", [0, 1, 2])
def test_predictions_are_those_of_the_run(finished, bundle, client):
    folder = finished.partition / f"client-{client}"
    own = open_client(folder, finished.settled)
    own.load(load_model(finished.folder))
    smooth = smoothing_of(finished.config, own.data)
    info = RoundInfo("predict", 1, "", final=True, smooth=smooth)
    expected = own.predict(info, torch.arange(own.data.num_nodes))["deployed"]
    with open_data(bundle, str(folder), quiet) as again:
        assert torch.allclose(predict_proba(bundle, again), expected, atol=1e-6)


def test_a_table_of_nodes_without_labels(bundle, data, tmp_path):
    lines = []
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", lines.append)
    table = pq.read_table(tmp_path / "p.parquet").to_pylist()
    evidence = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text("utf-8").splitlines()]
    ids = read_folder(data).ids.tolist()
    assert [row["id"] for row in table] == [line["id"] for line in evidence] == ids
    for row, line in zip(table, evidence, strict=True):
        assert 0 <= row["margin"] <= row["probability"] <= 1
        fused = line["views"]["fused"]
        assert row["evidence_predicted"] == max(fused, key=fused.get)
        assert row["evidence_probability"] == pytest.approx(max(fused.values()))
        assert sum(span["weight"] for span in line["spans"]) == pytest.approx(1, abs=1e-4)
    assert not any("accuracy" in line for line in lines)
    verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=lines.append)
    assert lines[-1].startswith("evidence verified")


def test_labels_of_a_graph_do_not_enter_its_predictions(finished, bundle, data, tmp_path):
    labelled, lines = tmp_path / "labelled", []
    labelled.mkdir()
    for name in ("nodes.parquet", "edges.parquet"):
        shutil.copyfile(finished.partition / "client-2" / name, labelled / name)
    predict(bundle, str(labelled), tmp_path / "with.parquet", log=lines.append)
    predict(bundle, str(data), tmp_path / "without.parquet", log=quiet)
    assert pq.read_table(tmp_path / "with.parquet") == pq.read_table(tmp_path / "without.parquet")
    assert any(line.startswith("accuracy") and "labelled nodes" in line for line in lines)


def accuracy_line(bundle, finished, tmp_path, named):
    """The printed accuracy of a graph whose labels `named` turns into others."""
    folder, lines = tmp_path / "renamed", []
    folder.mkdir()
    source = finished.partition / "client-2"
    shutil.copyfile(source / "edges.parquet", folder / "edges.parquet")
    table = pq.read_table(source / "nodes.parquet").select(["id", "text", "label"])
    labels = [named(place, label) for place, label in enumerate(table["label"].to_pylist())]
    pq.write_table(table.set_column(2, "label", [labels]), folder / "nodes.parquet")
    predict(bundle, str(folder), tmp_path / "p.parquet", log=lines.append)
    (found,) = [line for line in lines if line.startswith("accuracy")]
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    hits = [row["predicted"] == label for row, label in zip(rows, labels, strict=True)]
    return found, hits


def test_labels_that_the_model_lacks_are_counted_beside_the_accuracy(finished, bundle, tmp_path):
    line, hits = accuracy_line(
        bundle, finished, tmp_path, lambda place, label: "Renal" if place < 5 else label
    )
    score = sum(hits[5:]) / len(hits[5:])
    assert line == (
        f"accuracy    {score:.4f} on {len(hits) - 5} labelled nodes; 5 more have labels that the "
        "model lacks: 'Renal'"
    )


def test_one_node_of_a_class_that_the_model_lacks(finished, bundle, tmp_path):
    line, hits = accuracy_line(
        bundle, finished, tmp_path, lambda place, label: "Renal" if place == 0 else label
    )
    assert f"on {len(hits) - 1} labelled nodes; 1 more has a label that the model lacks" in line


def test_labels_of_which_the_model_knows_none_are_said_to_be(finished, bundle, tmp_path):
    names = ("Renal", "Cardiac\n\x1b[2J", "Ocular", "Dermal", "Nasal")
    line, hits = accuracy_line(
        bundle, finished, tmp_path, lambda place, label: names[min(max(place - 3, 0), 4)]
    )
    rest = len(hits) - 7
    assert rest > 4, "the last name has the most nodes, the first the second most"
    assert line == (
        f"accuracy    not known; {len(hits)} nodes have labels that the model lacks: "
        "'Nasal', 'Renal', 'Cardiac \\x1b[2J' and 2 more"
    )


def damaged(path, change):
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(lines[0])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def moved(line):
    line["spans"][0]["end"] -= 1


def heavier(line):
    line["spans"][0]["weight"] += 0.01


def surer(line):
    name = next(iter(line["views"]["fused"]))
    line["views"]["fused"][name] += 0.01


def stranger(line):
    line["id"] = "nobody"


def of_another_model(line):
    line["model"] = "0" * 16


def twice(line):
    """A span that hides behind the true one of the same place."""
    line["spans"].insert(0, line["spans"][0] | {"weight": 0.99})


def nobody_knows(line):
    line["spans"][0]["weight"] = float("nan")


def without_views(line):
    del line["views"]


def another_share(line):
    line["views"]["fused"]["nobody"] = 0.0


def another_view(line):
    line["views"]["sure"] = {}


def a_note(line):
    line["spans"][0]["note"] = "decisive"


def beyond_all(line):
    line["neighbours"][0]["gate"] = 10**400


def no_list(line):
    line["spans"] = {}


def nothing(line):
    line |= {"spans": [], "neighbours": [], "views": {}}


FORGED = [moved, heavier, surer, stranger, of_another_model, twice, nobody_knows, without_views]
FORGED += [another_share, another_view, a_note, beyond_all, no_list, nothing]


@pytest.mark.parametrize("change", FORGED)
def test_altered_evidence_is_found(bundle, data, tmp_path, change):
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", quiet)
    damaged(tmp_path / "e.jsonl", change)
    with pytest.raises(UserError, match=r"e\.jsonl"):
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


def test_a_key_that_stands_twice_is_found(bundle, data, tmp_path):
    """Readers disagree on which of the two counts."""
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", quiet)
    text = (tmp_path / "e.jsonl").read_text("utf-8")
    (tmp_path / "e.jsonl").write_text(text.replace('"weight"', '"weight": 0.99, "weight"', 1))
    with pytest.raises(UserError, match=r"e\.jsonl line 1: expected evidence .* 'weight' twice"):
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


@pytest.mark.parametrize("place", [0, -1])
def test_evidence_that_lacks_a_node_is_found(bundle, data, tmp_path, place):
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", quiet)
    lines = (tmp_path / "e.jsonl").read_text("utf-8").splitlines(keepends=True)
    lacking = json.loads(lines.pop(place))["id"]
    (tmp_path / "e.jsonl").write_text("".join(lines), "utf-8")
    with pytest.raises(UserError) as error:
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)
    assert f"expected evidence of all {len(lines) + 1} nodes" in str(error.value)
    assert f"found none of {lacking!r};" in str(error.value)
    del lines[1:4]
    (tmp_path / "e.jsonl").write_text("".join(lines), "utf-8")
    with pytest.raises(UserError, match="and 3 more;"):
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


def test_evidence_of_a_node_that_stands_twice_is_found(bundle, data, tmp_path):
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", quiet)
    first, *rest = (tmp_path / "e.jsonl").read_text("utf-8").splitlines(keepends=True)
    name = json.loads(first)["id"]
    for lines in ([first, *rest, first], [first, first, *rest[1:]]):
        (tmp_path / "e.jsonl").write_text("".join(lines), "utf-8")
        with pytest.raises(UserError, match=re.escape(f"found node {name!r} twice")):
            verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


def test_an_empty_file_is_no_evidence(bundle, data, tmp_path):
    (tmp_path / "e.jsonl").touch()
    with pytest.raises(UserError, match=r"e\.jsonl: expected evidence .* found no line"):
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


def span(node, weight):
    return {"id": node, "start": 0, "end": 4, "weight": weight, "sha256": ""}


LIGHT = [span("a", 0.2127), span("b", 0.00004)]


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([span("a", 0.99), span("a", 0.2127)], "the weight of 'a' too often"),
        ([span("a", 0.2127), span("c", 0.0)], "the weight of 'c' too often"),
        ([span("a", 0.2127)], "no weight of 'b'"),
        ([span("a", float("inf")), LIGHT[1]], "a difference of inf in the weight of 'a'"),
    ],
)
def test_an_entry_that_weighs_nothing_must_be_there_too(tmp_path, spans, found):
    views = {"fused": {"x": 1.0}}
    line = {
        "id": "a",
        "bundle": "b",
        "model": "m",
        "views": views,
        "neighbours": [],
        "spans": LIGHT,
    }
    _compare(line, line, tmp_path)
    with pytest.raises(UserError, match=f"node 'a': expected .* found {found}"):
        _compare(line | {"spans": spans}, line, tmp_path)


def test_one_altered_character_of_a_text_is_found(bundle, data, tmp_path):
    predict(bundle, str(data), tmp_path / "p.parquet", tmp_path / "e.jsonl", quiet)
    first = json.loads((tmp_path / "e.jsonl").read_text("utf-8").splitlines()[0])
    span = first["spans"][0]
    table = pq.read_table(data / "nodes.parquet")
    texts, place = table["text"].to_pylist(), table["id"].to_pylist().index(span["id"])
    at = span["start"]
    texts[place] = texts[place][:at] + "~" + texts[place][at + 1 :]
    pq.write_table(table.set_column(1, "text", [texts]), data / "nodes.parquet")
    with pytest.raises(UserError, match="altered"):
        verify(bundle, str(data), evidence=tmp_path / "e.jsonl", log=quiet)


def test_any_node_is_shown(bundle, data):
    node = str(read_folder(data).ids[0])
    assert show_node(bundle, str(data), node, quiet).startswith(f"Evidence of node {node!r}")
    with pytest.raises(UserError, match="'nobody'"):
        show_node(bundle, str(data), "nobody", quiet)


def test_a_damaged_bundle_is_refused(bundle, tmp_path, data):
    copy = tmp_path / "copy"
    shutil.copytree(bundle.folder, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\x00\x00\x80\x3f")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        predict(Bundle.open(copy), str(data), tmp_path / "p.parquet", log=quiet)
    assert not (tmp_path / "p.parquet").exists()
    (copy / "bundle.json").write_text("{}", "utf-8")
    with pytest.raises(UserError, match="format"):
        Bundle.open(copy)
    with pytest.raises(UserError, match="dance-flwr export"):
        Bundle.open(tmp_path)


def forged(bundle, folder, **facts):
    """A copy of a bundle with other facts, as its bytes stand in the file."""
    shutil.copytree(bundle.folder, folder)
    content = json.loads((folder / "bundle.json").read_text("utf-8"))
    for path, value in facts.items():
        *above, last = path.split("__")
        place = content
        for name in above:
            place = place[name]
        place[last] = value
    (folder / "bundle.json").write_text(json.dumps(content), "utf-8")
    return folder


@pytest.mark.parametrize(
    "facts",
    [
        *({"calibration__temperature": t} for t in (-1, 0, float("nan"), float("inf"), "1", 1e-9)),
        *({"calibration": value} for value in ({}, [], None, {"temperature": 1.0, "more": 1})),
        *({"config": value} for value in ([], "dance", {"method": "nothing"}, {"clients": {}})),
        *({"model_fingerprint": value} for value in (None, 7, "../../x", "")),
        *({"best_round": value} for value in (-1, "1", None, [1])),
        *({"format": value} for value in (2, "1", None)),
        {"privacy": None},
        {"method": 7},
    ],
)
def test_a_hostile_bundle_is_refused_in_one_line(bundle, tmp_path, facts):
    folder = forged(bundle, tmp_path / "forged", **facts)
    with pytest.raises(UserError, match=r"bundle\.json: expected a bundle of format 1") as error:
        Bundle.open(folder)
    assert "\n" not in str(error.value)


def test_a_bundle_cannot_ask_for_memory(bundle, data, tmp_path):
    """Shapes are compared before the model of the configuration is allocated."""
    folder = forged(bundle, tmp_path / "forged", **{"config__hidden-dim": 4_000_000})
    with pytest.raises(UserError, match=r"model\.safetensors: expected .* of shape \["):
        predict(Bundle.open(folder), str(data), tmp_path / "p.parquet", log=quiet)


def test_evidence_is_that_of_everything_in_the_bundle(bundle, data, tmp_path):
    """The digest of the bundle, which every line names, holds the temperature."""
    predict(bundle, str(data), tmp_path / "p.csv", tmp_path / "e.jsonl", quiet)
    other = Bundle.open(forged(bundle, tmp_path / "other", calibration__temperature=8.0))
    with pytest.raises(UserError, match="found evidence of bundle"):
        verify(other, str(data), evidence=tmp_path / "e.jsonl", log=quiet)
    with pytest.raises(UserError, match=r"the table, the texts, the edges or the bundle"):
        verify(other, str(data), tmp_path / "p.csv", log=quiet)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_suffix_decides_the_format_and_every_row_is_verified(bundle, data, tmp_path, suffix):
    path, lines = tmp_path / f"p.{suffix}", []
    predict(bundle, str(data), path, log=quiet)
    content = path.read_bytes()
    assert content.startswith({"parquet": b"PAR1", "csv": b'"id",', "jsonl": b'{"id": '}[suffix])
    verify(bundle, str(data), path, log=lines.append)
    assert lines[-1].startswith("predictions verified")
    if suffix == "parquet":
        return
    rows = content.splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:-1]))
    with pytest.raises(UserError, match="expected a row for each"):
        verify(bundle, str(data), path, log=quiet)
    path.write_bytes(b"".join(rows[:-2] + rows[-1:] + rows[-2:-1]))
    with pytest.raises(UserError, match=r"expected .* of the bundle, found"):
        verify(bundle, str(data), path, log=quiet)


def test_other_suffixes_are_refused(bundle, data, tmp_path):
    with pytest.raises(UserError, match=r"--out: expected a name that ends in \.parquet, \.csv"):
        predict(bundle, str(data), tmp_path / "p.xlsx", log=quiet)


def test_data_with_another_encoder_are_refused(bundle, tmp_path, finished):
    copy = tmp_path / "client"
    shutil.copytree(finished.partition / "client-0", copy)
    card = json.loads((copy / "client.json").read_text("utf-8"))
    card["class_names"] = card["class_names"][::-1]
    (copy / "client.json").write_text(json.dumps(card), "utf-8")
    with pytest.raises(UserError, match="class-names"):
        predict(bundle, str(copy), tmp_path / "p.parquet", log=quiet)


def test_nothing_is_overwritten(finished, bundle, data, tmp_path):
    (tmp_path / "p.parquet").touch()
    with pytest.raises(UserError, match="--out"):
        predict(bundle, str(data), tmp_path / "p.parquet", log=quiet)
    with pytest.raises(UserError, match="--out"):
        export(finished.folder, bundle.folder)


def test_a_model_without_evidence_predicts_too(run, data, tmp_path):
    plain = export(run(clients=3, rounds=1, method="fedavg-full").folder, tmp_path / "plain")
    predict(plain, str(data), tmp_path / "p.parquet", log=quiet)
    assert pq.read_table(tmp_path / "p.parquet").column_names[-1] == "margin"
    with pytest.raises(UserError, match="--evidence"):
        predict(plain, str(data), tmp_path / "q.parquet", tmp_path / "e.jsonl", quiet)
    assert not (tmp_path / "q.parquet").exists()


def test_personal_models_are_no_bundle(run, tmp_path):
    with pytest.raises(UserError, match="local-only"):
        export(run(clients=3, rounds=1, method="local-only").folder, tmp_path / "own")
