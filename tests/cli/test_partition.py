"""`dance-flwr partition` and `data show` of partitions."""

import json
import shutil

import pytest

from dance_flwr.data.partition import read_manifest, write_manifest
from dance_flwr.fingerprint import commitment


@pytest.fixture
def call(cli, monkeypatch):
    """A function that runs a command which must succeed, and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words):
        done = cli(*words)
        assert done.code == 0, done.err
        return done.out

    return run


@pytest.fixture
def refused(cli):
    """A function that runs a command which must fail, and returns its one line."""

    def run(*words):
        done = cli(*words)
        assert done.code == 2 and len(done.err) == 1, done
        return done.err[0]

    return run


@pytest.fixture
def made(call, tiny, tmp_path):
    call("partition", "--data", tiny, "--clients", 3, "--out", tmp_path / "made.json")
    return tmp_path / "made.json"


def test_client_folders_of_a_skewed_partition(call, tiny, tmp_path):
    options = ("--clients", 4, "--method", "label-dirichlet", "--set", "dirichlet-alpha=0.5")
    out = tmp_path / "new"
    said = call("partition", "--data", tiny, *options, "--seed", 3, "--out", out)
    spec = read_manifest(out / "manifest.json")["spec"]
    assert (spec["method"], spec["clients"], spec["alpha"], spec["seed"]) == (
        *("label-dirichlet", 4, 0.5, 3),
    )
    assert "alpha 0.5" in said and len(list(out.glob("client-*/text"))) == 4
    assert {path.name for path in out.iterdir()} == {
        *("client-0", "client-1", "client-2", "client-3", "manifest.json"),
    }
    assert "label skew" in call("data", "show", out)


def test_it_takes_the_keys_of_a_run_and_options_win(call, tiny, tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text('clients = 5\nseed = 3\npartition = "random"\nlabels-per-class = 2\n')
    call(
        *("partition", "--data", tiny, "--config", file, "--set", "seed=4", "--clients", 2),
        *("--out", tmp_path / "made.json"),
    )
    spec = read_manifest(tmp_path / "made.json")["spec"]
    assert (spec["clients"], spec["seed"], spec["method"]) == (2, 4, "random")
    assert spec["labels_per_class"] == 2


def test_nothing_is_overwritten(refused, made, tiny, tmp_path):
    before = made.read_bytes()
    words = ("partition", "--data", tiny, "--clients", 4, "--out")
    assert f"--out: expected a new file, found {made}; choose" in refused(*words, made)
    assert "new or empty folder" in refused(*words, tmp_path)
    assert made.read_bytes() == before and [*tmp_path.iterdir()] == [made]


def test_show_prints_every_client(call, cli, made):
    said, content = call("data", "show", made), read_manifest(made)
    rows = [line.split() for line in said.splitlines()]
    for k, client in enumerate(content["clients"]):
        assert any(row[:3] == [str(k), str(client["nodes"]), str(client["edges"])] for row in rows)
    assert f"{content['ratio_of_edges_kept']:.1%}" in said
    assert json.loads(call("data", "show", made, "--json")) == content["report"]


def test_a_manifest_is_reproduced_and_every_client_agrees(call, made, tiny, tmp_path):
    again = tmp_path / "again"
    said = call("partition", "--manifest", made, "--data", tiny, "--out", again)
    assert "3 of 3 clients hold the same nodes" in said
    assert f"sha256 {read_manifest(made)['sha256']} agrees" in said
    assert read_manifest(again / "manifest.json") == read_manifest(made)
    shutil.copytree(tiny, tmp_path / "renamed")
    said = call("partition", "--manifest", made, "--data", tmp_path / "renamed")
    assert "same clients, but another name" in said


def test_a_manifest_of_other_clients_is_refused(refused, made, tiny):
    content = json.loads(made.read_text())
    content["clients"][1]["ids_sha256"] = "0" * 64
    content["sha256"] = commitment(
        {name: value for name, value in content.items() if name != "sha256"}
    )
    write_manifest(made, content)
    line = refused("partition", "--manifest", made, "--data", tiny)
    assert "client 1: expected ids_sha256 0000" in line
