"""`dance-flwr partition`: make, show, from-manifest."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from dance_flwr.cli.partition import app
from dance_flwr.data import client_folder, prepare
from dance_flwr.data.partition import read_manifest, write_manifest
from dance_flwr.errors import DataError, UserError
from dance_flwr.fingerprint import commitment


def call(*arguments):
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "100"}
    )
    if isinstance(result.exception, UserError):
        assert "\n" not in str(result.exception)
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def made(tiny, tmp_path):
    file = tmp_path / "made.json"
    call("make", "--data", tiny, "--clients", 3, "--manifest-only", "--out", file)
    return file


def test_make_writes_what_write_partition_gets(tiny, tmp_path, monkeypatch):
    seen = {}

    def write(graph, partition, content, folder, bank, log):
        seen.update(graph=graph, partition=partition, content=content, folder=folder, bank=bank)

    # A module that the command imports while it is replaced would keep `write` for good.
    assert prepare.write_partition is client_folder.write_partition
    monkeypatch.setattr(client_folder, "write_partition", write)
    options = (
        "--clients",
        4,
        "--method",
        "label-dirichlet",
        "--alpha",
        0.5,
        "--seed",
        3,
        "--no-encode",
    )
    said = call("make", "--data", tiny, "--out", tmp_path / "new", *options)
    spec = seen["partition"].spec
    assert (spec.method, spec.clients, spec.alpha, spec.seed) == ("label-dirichlet", 4, 0.5, 3)
    assert seen["content"]["spec"]["alpha"] == 0.5
    assert (seen["folder"], seen["bank"]) == (tmp_path / "new", None)
    assert "alpha 0.5" in said


def test_make_writes_client_folders(tiny, tmp_path):
    call("make", "--data", tiny, "--clients", 2, "--no-encode", "--out", tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "client-0",
        "client-1",
        "manifest.json",
    ]
    assert "label skew" in call("show", tmp_path / "new")


def test_make_takes_the_keys_of_a_run_and_options_win(tiny, tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text('clients = 5\nseed = 3\npartition = "random"\nlabels-per-class = 2\n')
    call(
        *("make", "--data", tiny, "--config", file, "--set", "seed=4", "--clients", 2),
        *("--manifest-only", "--out", tmp_path / "made.json"),
    )
    spec = read_manifest(tmp_path / "made.json")["spec"]
    assert (spec["clients"], spec["seed"], spec["method"]) == (2, 4, "random")
    assert spec["labels_per_class"] == 2


def test_make_refuses_what_no_run_could_learn_from(tmp_path):
    folder, out = tmp_path / "plain", tmp_path / "out"
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,text,label\n0,a,\n1,b,\n")
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(DataError, match="no node has a label"):
        call("make", "--data", folder, "--clients", 2, "--method", "random", "--out", out)
    assert not out.exists()


def test_make_overwrites_nothing(tiny, tmp_path):
    (tmp_path / "kept").write_text("x")
    with pytest.raises(UserError, match="new or empty folder"):
        call("make", "--data", tiny, "--out", tmp_path)


def test_a_manifest_alone_overwrites_nothing_either(made, tiny, tmp_path):
    options = ("--data", tiny, "--clients", 4, "--manifest-only", "--out")
    before = made.read_bytes()
    with pytest.raises(UserError, match=r"--out: expected a new file, found .*made\.json; choose"):
        call("make", *options, made)
    assert made.read_bytes() == before
    call("make", "--data", tiny, "--clients", 2, "--no-encode", "--out", tmp_path / "two")
    with pytest.raises(UserError, match="new or empty folder"):
        call("make", *options, tmp_path / "two")
    assert len(read_manifest(tmp_path / "two" / "manifest.json")["clients"]) == 2
    call("make", *options, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["manifest.json"]


def test_show_prints_every_client(made):
    said = call("show", made)
    content = read_manifest(made)
    rows = [line.split() for line in said.splitlines()]
    for k, client in enumerate(content["clients"]):
        assert any(row[:3] == [str(k), str(client["nodes"]), str(client["edges"])] for row in rows)
    assert f"{content['ratio_of_edges_kept']:.1%}" in said


def test_show_refuses_what_is_no_manifest(tmp_path):
    with pytest.raises(DataError, match="create the partition first"):
        call("show", tmp_path)


def test_from_manifest_says_that_every_client_agrees(made, tiny, tmp_path):
    said = call("from-manifest", made, "--data", tiny, "--no-encode", "--out", tmp_path / "again")
    assert "3 of 3 clients hold the same nodes" in said
    assert f"sha256 {read_manifest(made)['sha256']} agrees" in said
    assert read_manifest(tmp_path / "again" / "manifest.json") == read_manifest(made)


def test_from_manifest_says_where_only_the_origin_differs(made, tiny, tmp_path):
    copy = tmp_path / "renamed"
    shutil.copytree(tiny, copy)
    assert "same clients, but" in call("from-manifest", made, "--data", copy)


def test_from_manifest_refuses_other_clients(made, tiny):
    content = json.loads(made.read_text())
    content["clients"][1]["ids_sha256"] = "0" * 64
    content["sha256"] = commitment(
        {name: value for name, value in content.items() if name != "sha256"}
    )
    write_manifest(made, content)
    with pytest.raises(DataError, match="client 1: expected ids_sha256 0000"):
        call("from-manifest", made, "--data", tiny)
