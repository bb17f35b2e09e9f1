"""A model that is handed on: what a bundle holds, and predictions of nodes that are new to it."""

import csv
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.predicting import open_data, predict_all, show_node
from dance_flwr.api.prediction_table import predict, verify
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import open_client
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.result import load_model


def quiet(line):
    pass


@pytest.fixture(scope="module")
def finished(run):
    return run(clients=3, rounds=3, smoothing="correct-and-smooth")


@pytest.fixture(scope="module")
def bundle(finished, tmp_path_factory):
    return export(finished.folder, tmp_path_factory.mktemp("bundles") / "bundle")


@pytest.fixture(scope="module")
def data(finished, tmp_path_factory):
    """A folder with the nodes of client 2, without labels."""
    source, folder = finished.partition / "client-2", tmp_path_factory.mktemp("data") / "site"
    folder.mkdir()
    pq.write_table(
        pq.read_table(source / "nodes.parquet").select(["id", "text"]), folder / "nodes.parquet"
    )
    shutil.copyfile(source / "edges.parquet", folder / "edges.parquet")
    return folder


@pytest.fixture(scope="module")
def written(bundle, data, tmp_path_factory):
    """The table and the lines of evidence of these nodes, and what was logged."""
    folder, lines = tmp_path_factory.mktemp("written"), []
    predict(bundle, str(data), folder / "p.parquet", folder / "e.jsonl", lines.append)
    return folder, lines


@pytest.fixture
def entries(written):
    return [json.loads(line) for line in (written[0] / "e.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture
def verified(bundle, data, tmp_path):
    """A function that verifies a text as the evidence of these nodes."""

    def check(text, bundle=bundle, data=data):
        (tmp_path / "e.jsonl").write_text(text, "utf-8")
        verify(bundle, str(data), tmp_path / "e.jsonl", quiet)

    return check


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


def test_a_bundle_with_keys_of_other_methods_opens(bundle, tmp_path):
    """As releases wrote it that stored the keys of every method."""
    folder = shutil.copytree(bundle.folder, tmp_path / "old")
    facts = json.loads((folder / "bundle.json").read_text())
    facts["config"] |= {"condense.outer": 1}
    (folder / "bundle.json").write_text(json.dumps(facts))
    assert Bundle.open(folder).config == bundle.config


@pytest.mark.parametrize("client", [0, 1, 2])
@pytest.mark.parametrize("smoothing", ["none", "correct-and-smooth"])
def test_predictions_are_those_of_the_run(finished, dance, smoothing, client, tmp_path):
    finished = dance if smoothing == "none" else finished
    folder, bundle = (
        finished.partition / f"client-{client}",
        export(finished.folder, tmp_path / "b"),
    )
    own = open_client(folder, finished.settled)
    own.load(load_model(finished.folder))
    smooth = own.smooth
    info = RoundInfo("predict", 1, "", final=True, smooth=smooth)
    expected = own.predict(info, torch.arange(own.data.num_nodes))["deployed"]
    with open_data(bundle, str(folder), quiet) as again:
        found = predict_all(bundle, again).probabilities
    torch.testing.assert_close(found, bundle.calibration.apply(expected), atol=1e-6, rtol=0)


def test_a_table_of_nodes_without_labels(bundle, data, written, entries):
    folder, lines = written
    table, ids = pq.read_table(folder / "p.parquet").to_pylist(), read_folder(data).ids.tolist()
    assert [row["id"] for row in table] == [line["id"] for line in entries] == ids
    for row, line in zip(table, entries, strict=True):
        assert 0 <= row["margin"] <= row["probability"] <= 1
        fused = line["views"]["fused"]
        assert row["evidence_predicted"] == max(fused, key=fused.get)
        assert row["evidence_probability"] == pytest.approx(max(fused.values()))
        assert sum(span["weight"] for span in line["spans"]) == pytest.approx(1, abs=1e-4)
    assert not any("accuracy" in line for line in lines)
    said = []
    verify(bundle, str(data), folder / "e.jsonl", said.append)
    assert said[-1].startswith("evidence verified")


def test_labels_of_a_graph_do_not_enter_its_predictions(finished, bundle, data, tmp_path):
    labelled, lines = tmp_path / "labelled", []
    labelled.mkdir()
    for name in ("nodes.parquet", "edges.parquet"):
        shutil.copyfile(finished.partition / "client-2" / name, labelled / name)
    predict(bundle, str(labelled), tmp_path / "with.parquet", log=lines.append)
    predict(bundle, str(data), tmp_path / "without.parquet", log=quiet)
    assert pq.read_table(tmp_path / "with.parquet") == pq.read_table(tmp_path / "without.parquet")
    assert any(line.startswith("accuracy") and "labelled nodes" in line for line in lines)


@pytest.mark.parametrize("relabelled", [1, 5, 100])
def test_labels_that_the_model_lacks_are_counted_apart(finished, bundle, tmp_path, relabelled):
    folder, lines = tmp_path / "renamed", []
    folder.mkdir()
    source = finished.partition / "client-2"
    shutil.copyfile(source / "edges.parquet", folder / "edges.parquet")
    table = pq.read_table(source / "nodes.parquet").select(["id", "text", "label"])
    labels = table["label"].to_pylist()
    count = min(relabelled, len(labels))
    labels[:count] = ["Cardiac\n\x1b[2J", *["Renal"] * (count - 1)]
    pq.write_table(table.set_column(2, "label", [labels]), folder / "nodes.parquet")
    predict(bundle, str(folder), tmp_path / "p.parquet", log=lines.append)
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    hits = [row["predicted"] == label for row, label in zip(rows, labels, strict=True)][count:]
    said = [line for line in lines if line.startswith("accuracy")]
    assert said == (
        [f"accuracy    {sum(hits) / len(hits):.4f} on {len(hits)} labelled nodes"] if hits else []
    )
    (lacking,) = [line for line in lines if line.startswith("not counted")]
    assert f" {count} node" in lacking and "Cardiac" in lacking and lacking.isprintable()
    assert ("Renal" in lacking) == (count > 1)


def text_of(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


def span(**changes):
    """A change of the first span."""
    return lambda line: line["spans"][0].update(changes)


def with_span(place=10**6, **changes):
    """One span more, like the first but for these changes."""
    return lambda line: line["spans"].insert(place, line["spans"][0] | changes)


FORGED = {
    "moved": lambda line: span(end=line["spans"][0]["end"] - 1)(line),
    "heavier": lambda line: span(weight=line["spans"][0]["weight"] + 0.01)(line),
    "no number": span(weight=float("nan")),
    "a note": span(note="decisive"),
    "surer": lambda line: line["views"]["fused"].update(
        {name: share + 0.01 for name, share in [*line["views"]["fused"].items()][:1]}
    ),
    "a stranger": lambda line: line.update(id="nobody"),
    "another model": lambda line: line.update(model="0" * 16),
    # A span that hides behind the true one of the same place, and one that changes no sum.
    "twice": with_span(0, weight=0.99),
    "weightless": with_span(start=0, end=0, weight=0.0),
    "behind all": with_span(hop=9, weight=0.0),
    "without a span": lambda line: line["spans"].pop(),
    "without spans": lambda line: line.update(spans=[]),
    "without views": lambda line: line.pop("views"),
    "another share": lambda line: line["views"]["fused"].update(nobody=0.0),
    "another view": lambda line: line["views"].update(sure={}),
    "beyond all": lambda line: line["neighbours"][0].update(gate=10**400),
    "no list": lambda line: line.update(spans={}),
    "nothing": lambda line: line.update(spans=[], neighbours=[], views={}),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_altered_evidence_is_found(entries, verified, change):
    change(entries[0])
    with pytest.raises(UserError, match=r"e\.jsonl"):
        verified(text_of(entries))


def test_lines_that_are_missing_or_twice_are_found(entries, verified):
    first, whole = entries[0], text_of(entries)
    missing = f"expected evidence of all {len(entries)} nodes of the data, found none of "
    twice = f"found node {first['id']!r} twice"
    for text, expected in (
        (text_of(entries[1:]), f"{missing}{first['id']!r};"),
        (text_of(entries[4:]), f"{missing}{first['id']!r} and 3 more;"),
        (text_of([*entries, first]), twice),
        (text_of([first, first, *entries[2:]]), twice),
        ("", "found no line"),
        # Readers disagree on which of the two counts.
        (whole.replace('"weight"', '"weight": 0.99, "weight"', 1), "'weight' twice"),
    ):
        with pytest.raises(UserError, match=re.escape(expected)):
            verified(text)


def test_one_altered_character_of_a_text_is_found(data, entries, verified, tmp_path):
    shutil.copytree(data, tmp_path / "altered")
    span, path = entries[0]["spans"][0], tmp_path / "altered" / "nodes.parquet"
    table = pq.read_table(path)
    texts, place = table["text"].to_pylist(), table["id"].to_pylist().index(span["id"])
    at = span["start"]
    texts[place] = texts[place][:at] + "~" + texts[place][at + 1 :]
    pq.write_table(table.set_column(1, "text", [texts]), path)
    with pytest.raises(UserError, match="altered"):
        verified(text_of(entries), data=path.parent)


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


def test_evidence_is_that_of_everything_in_the_bundle(bundle, entries, verified, tmp_path):
    """The digest of the bundle, which every line names, holds the temperature."""
    other = Bundle.open(forged(bundle, tmp_path / "other", calibration__temperature=8.0))
    with pytest.raises(UserError, match=r"expected bundle .* found"):
        verified(text_of(entries), bundle=other)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_suffix_decides_the_format(bundle, data, tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    predict(bundle, str(data), path, log=quiet)
    content = path.read_bytes()
    assert content.startswith({"parquet": b"PAR1", "csv": b'"id",', "jsonl": b'{"id": '}[suffix])


def test_a_spreadsheet_finds_no_formula_in_a_csv(bundle, data, tmp_path):
    """Cells of text alone, and other formats have them as they are."""
    shown = {
        "=1+1": "'=1+1",
        "@anna": "'@anna",
        "\tx": "'\tx",
        "-5": "-5",
        "+1e3": "+1e3",
        "a=b": "a=b",
    }
    nodes = pq.read_table(data / "nodes.parquet")
    ids = pa.array([*shown, *nodes["id"].to_pylist()[len(shown) :]])
    (tmp_path / "site").mkdir()
    pq.write_table(nodes.set_column(0, "id", ids), tmp_path / "site" / "nodes.parquet")
    edges = pq.read_table(data / "edges.parquet").slice(0, 0)
    pq.write_table(edges, tmp_path / "site" / "edges.parquet")
    for suffix in ("csv", "parquet"):
        predict(bundle, str(tmp_path / "site"), tmp_path / f"p.{suffix}", log=quiet)
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows[: len(shown)]] == list(shown.values())
    assert all(float(row["probability"]) > 0 for row in rows)
    assert pq.read_table(tmp_path / "p.parquet")["id"].to_pylist() == ids.to_pylist()


def test_data_with_another_encoder_are_refused(bundle, tmp_path, finished):
    copy = tmp_path / "client"
    shutil.copytree(finished.partition / "client-0", copy)
    card = json.loads((copy / "client.json").read_text("utf-8"))
    card["class_names"] = card["class_names"][::-1]
    (copy / "client.json").write_text(json.dumps(card), "utf-8")
    with pytest.raises(UserError, match="class-names"):
        predict(bundle, str(copy), tmp_path / "p.parquet", log=quiet)


def test_a_model_without_evidence_predicts_too(reference, data, tmp_path):
    plain = export(reference(method="fedavg-full").folder, tmp_path / "plain")
    predict(plain, str(data), tmp_path / "p.parquet", log=quiet)
    assert pq.read_table(tmp_path / "p.parquet").column_names[-1] == "margin"
    with pytest.raises(UserError, match="--evidence"):
        predict(plain, str(data), tmp_path / "q.parquet", tmp_path / "e.jsonl", quiet)
    assert not (tmp_path / "q.parquet").exists()


def test_personal_models_are_no_bundle(reference, tmp_path):
    with pytest.raises(UserError, match="local-only"):
        export(reference(method="local-only").folder, tmp_path / "own")
