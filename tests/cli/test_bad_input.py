"""Mistakes of a user or of a client: one line that starts with `error:`, exit code 2, and nothing
half-written.
"""

import json
import shutil
import sys

import pytest
from support.graphs import text_graph

from dance_flwr import PROTOCOL, __version__
from dance_flwr.config.text import to_toml
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.errors import ProtocolError, UserError
from dance_flwr.federation.wire import keys

PLAIN = {"method": "fedavg-full"}
RESULT_FILES = {"result.json", "model.safetensors"}


@pytest.fixture
def start(cli, run_config, tmp_path):
    """A function that runs `dance-flwr run` over the small settings and returns what
    `cli` returns.
    """

    def call(*arguments, **keys):
        settings = tmp_path / "small.toml"
        settings.write_text(
            to_toml(run_config(**PLAIN | {"rounds": 2, "out": str(tmp_path / "out")} | keys))
        )
        return cli("run", "--config", settings, *arguments)

    return call


def assert_one_error(done, tmp_path, *words):
    """One error line that names these words."""
    assert done.code == 2 and len(done.err) == 1, done
    assert done.err[-1].startswith("error: ")
    for word in words:
        assert word in done.err[-1], (word, done.err[-1])
    assert not RESULT_FILES & {path.name for path in tmp_path.rglob("*")}
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".partial", ".tmp")]


# Nodes and clients that fail


@pytest.mark.filterwarnings("default:.*empty text")  # here it is an error
def test_empty_texts_are_one_warning_and_kept(start, tmp_path):
    texts = ["Butter in the oven."] * 10 + ["", "   "]
    names = [f"n{i}" for i in range(12)]
    data, pairs = tmp_path / "own", [(0, 1), (1, 2), (5, 6)]
    write_folder(text_graph("own", names, texts, [i % 2 for i in range(12)], pairs), data)
    done = start(data=str(data), clients=2, rounds=1, partition="random")
    (warned,) = [line for line in done.err if "warning" in line.lower()]
    assert done.code == 0 and warned.startswith("warning: ") and "2 of 12" in warned
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert sum(result["nodes_per_client"]) == 12


@pytest.mark.parametrize("surprise", [False, True])
def test_one_node_of_another_protocol_is_refused_before_anything_else_and_named(
    run, monkeypatch, surprise, client=2
):
    """Also where its greeting holds what this release does not know. Three clients are a quorum;
    `test_greetings.py` has a run that goes on above it.
    """
    import client_app

    requests = []

    def app(message, context):
        theirs = context.node_config["partition-id"] == client
        monkeypatch.setattr(client_app, "PROTOCOL", 99 if theirs else PROTOCOL)
        requests.append(message.metadata.message_type)
        reply = client_app.app(message, context)
        if theirs and surprise:
            reply.content["config"]["surprise"] = "x"
        return reply

    with pytest.raises(ProtocolError) as failure:
        run(app=app)
    assert str(failure.value) == (
        f"client {client}: expected protocol {PROTOCOL} of the server, found 99; install "
        f"dance-flwr {__version__} on that node, or stop the SuperLink that was started in "
        "another project"
    )
    assert set(requests) == {keys.HELLO}


@pytest.mark.parametrize(
    "error", [RuntimeError("out of luck"), UserError("out of luck")], ids=["crash", "user error"]
)
def test_a_failing_client_and_its_reason_are_named(start, tmp_path, monkeypatch, caplog, error):
    """And where a bug is in the code, which the log says if it is asked for all."""
    from dance_flwr.federation.client.client import Client

    honest = Client.train

    def train(self, *arguments, **named):
        if self.data.card.client == 1:
            raise error
        return honest(self, *arguments, **named)

    monkeypatch.setenv("FLWR_LOG_LEVEL", "DEBUG")
    caplog.set_level("DEBUG", "flwr")  # as Flower does at its import
    monkeypatch.setattr(Client, "train", train)
    words = "expected at least 3 valid replies, found 2; client 1: "
    assert_one_error(start(), tmp_path, words, "out of luck; 0 of 2 rounds")
    assert ("in train\n    raise error" in caplog.text) == isinstance(error, RuntimeError)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"learning-rate": -1.0}, "learning-rate: expected"),
        ({"no-such-key": 1}, "no-such-key"),
        ({"privacy.secure-aggregation": True, "clients": 2}, "at least 3 clients per round"),
    ],
)
def test_a_run_refused_for_its_configuration_leaves_its_reason(
    cli, run_config, tmp_path, monkeypatch, keys, reason
):
    from flwr.app import Context, RecordDict

    import server_app
    from dance_flwr.config.tree import flatten

    out = tmp_path / "out"
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    with pytest.raises(UserError, match=reason):
        values = flatten(run_config()) | {"out": str(out)} | keys
        server_app.main(None, Context(1, 0, {}, RecordDict(), values))
    assert sys.tracebacklimit == 0, "Flower logs the exception"
    assert reason in (out / "error.txt").read_text()
    done = cli("status", str(out))
    assert done.code == 0 and "failed: " in done.out and reason in done.out


# Partitions that were altered after they were made


@pytest.fixture
def own_root(dance, tmp_path):
    """(data root, partition folder) copied from the session's, to be altered."""
    root, copy = tmp_path / "root", tmp_path / "root" / "partitions" / dance.partition.name
    shutil.copytree(dance.partition.parent.parent / "bank", root / "bank")
    shutil.copytree(dance.partition, copy, ignore=shutil.ignore_patterns("runs"))
    return root, copy


def test_a_copied_root_is_found_again(start, own_root):
    root, _ = own_root
    done = start("--set", f"data-root={root}")
    assert done.code == 0 and "texts       read in an earlier run" in done.out


def alter_manifest(folder):
    text = (folder / "manifest.json").read_text()
    assert '"num_nodes": 72' in text
    (folder / "manifest.json").write_text(text.replace('"num_nodes": 72', '"num_nodes": 73'))


def alter_card(key, value):
    def edit(folder):
        path = folder / "client-1" / "client.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return edit


def swap_clients(folder):
    (folder / "client-0").rename(folder / "x")
    (folder / "client-1").rename(folder / "client-0")
    (folder / "x").rename(folder / "client-1")


ALTERED = {
    "manifest": (alter_manifest, ["manifest.json", "altered"]),
    "partition of a card": (alter_card("partition_sha256", "0" * 64), ["client-1"]),
    "ids of a card": (alter_card("ids_sha256", "0" * 64), ["client-1"]),
    "size of a card": (alter_card("num_nodes", 5), ["client-1"]),
    "number of a card": (alter_card("client", 0), ["client-1"]),
    "unknown field of a card": (alter_card("colour", "red"), ["client.json"]),
    "card that is no JSON": (
        lambda f: (f / "client-1" / "client.json").write_text("{"),
        ["client.json"],
    ),
    "client folder": (lambda f: shutil.rmtree(f / "client-2"), ["client-2"]),
    "two clients' folders": (swap_clients, ["client-0"]),
    "text bank": (
        lambda f: (f / "client-1" / "text" / "chunk_ptr.npy").write_bytes(b"x"),
        ["chunk_ptr.npy"],
    ),
    "labels": (lambda f: (f / "client-1" / "arrays" / "labels.npy").unlink(), ["labels.npy"]),
}


@pytest.mark.parametrize("alter", ALTERED)
def test_an_altered_partition_is_refused(start, own_root, tmp_path, alter):
    edit, words = ALTERED[alter]
    edit(own_root[1])
    assert_one_error(start("--set", f"data-root={own_root[0]}"), tmp_path / "out", *words)
