"""The privacy boundary: no message holds what must stay with a client, and a client opens its own
files only.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import urllib3.util.connection  # noqa: F401  # its first import binds a socket to try IPv6
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from support.asking import first_training
from support.audit import Audit
from support.boundary import Boundary, allowed, keys_of, leaks, watch
from support.boundary import traced as traced
from support.boundary import watched as watched
from support.graphs import EVERY_ROUND, TEXT_DIM, knowledge_graph
from support.planted import BELOW_PYTHON, LEAKS, in_training
from support.project import PROJECT
from support.searching import secrets_of
from support.tracing import why_not

import client_app
from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import BACKBONES, METHODS
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import config_of
from docs.tables import what_leaves

# One worker: its process under strace, which loads every library, is started once.
pytestmark = pytest.mark.xdist_group("boundary")


@pytest.fixture
def audit():
    watching = Audit()
    yield watching
    watching.close()


@pytest.fixture(scope="module")
def masked(run, traced):
    """The same of the default method under secure aggregation."""
    return watch(run, traced, privacy_secure_aggregation=True, seed=49)


@pytest.fixture(scope="module")
def secrets(dance):
    return secrets_of(dance)


@pytest.fixture(scope="module")
def whitelist(dance):
    return allowed(dance.config)


@pytest.mark.parametrize("method", METHODS.builtin, scope="class")
class TestBoundary(Boundary):
    """Of the methods of this package."""


@pytest.fixture(scope="module")
def relations(run, tiny, tmp_path_factory):
    """A function that runs a method on the tiny graph with texts of edges and scaled weights."""

    def start(scale, **keys):
        folder = tmp_path_factory.mktemp("relations") / "relations"
        graph = knowledge_graph(read_folder(tiny))
        write_folder(replace(graph, weights=graph.weights * np.float32(scale)), folder)
        return run(data=str(folder), rounds=2, **keys), graph

    return start


def test_texts_of_edges_stay_and_add_no_key(relations):
    finished, graph = relations(1, **EVERY_ROUND)
    secrets, whitelist = secrets_of(finished), allowed(finished.config)
    secrets.strings += [text.encode() for text in graph.edge_texts.texts]
    assert any(b"relates to: " in text for text in secrets.strings)
    scanned = set()
    for message in finished.messages:
        assert leaks(message, secrets, whitelist, scanned) == [], message.metadata.message_type
    assert set().union(*map(keys_of, finished.messages)) == whitelist


def test_the_scale_of_the_weights_of_edges_stays(relations):
    """Weights of another scale (a power of two, which rounds nothing) give the same uploads."""
    one, other = (relations(scale, method="fedavg-full")[0] for scale in (1, 1024))
    for message, again in zip(one.messages, other.messages, strict=True):
        assert keys_of(message) == keys_of(again)
        if message.has_content() and "arrays" in message.content:
            arrays, others = (m.content.array_records["arrays"] for m in (message, again))
            assert {k: v.data for k, v in arrays.items()} == {k: v.data for k, v in others.items()}
        if message.has_content() and "metrics" in message.content:
            metrics, others = (dict(m.content.metric_records["metrics"]) for m in (message, again))
            timed = ("seconds-", "llm-")
            assert {k: v for k, v in metrics.items() if not k.startswith(timed)} == {
                k: v for k, v in others.items() if not k.startswith(timed)
            }


def planted(dance, secrets, kind):
    """A genuine training reply with one thing of a client put into it."""
    reply, data = dance.replies("train")[0], dance.data(0)
    ids, texts = data.ids(), data.texts()
    chunk, pooled = data.table.chunks[3].numpy(), data.table.nodes[5].numpy()
    arrays = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
    metrics, config = dict(reply.content.metric_records["metrics"]), {}
    wide = "backbone.first.lin.weight"  # [h, d]
    if kind == "id":
        config["note"] = f"worst node {ids[4]}"
    elif kind == "text":
        config["note"] = texts[2]
    elif kind == "half a text, in capitals":
        config["note"] = texts[2][: len(texts[2]) // 2].upper()
    elif kind == "chunk row":
        arrays[wide] = np.vstack([chunk, arrays[wide][1:]])
    elif kind == "chunk column":
        arrays[wide] = np.column_stack([arrays[wide].T[:, 1:], chunk])
    elif kind == "shifted and scaled half-precision row":
        flat = arrays[wide].ravel().copy()
        flat[100 : 100 + TEXT_DIM] = (0.01 * pooled).astype(np.float16)
        arrays[wide] = flat.reshape(arrays[wide].shape)
    elif kind == "embedding in a metric":
        metrics["loss"] = chunk.tolist()
    elif kind == "trace in a metric":
        metrics["val-actual"] = secrets.traces[0].astype(int).tolist()
    elif kind == "trace in scalars":
        metrics |= {f"x{i}": float(value) for i, value in enumerate(secrets.traces[1])}
    elif kind == "new key":
        metrics["difficulty"] = 0.5
    records = {
        "arrays": ArrayRecord({k: torch.tensor(v) for k, v in arrays.items()}),
        "metrics": MetricRecord(metrics),
    }
    leak = Message(
        RecordDict(records | ({"config": ConfigRecord(config)} if config else {})), reply_to=reply
    )
    leak.metadata._src_node_id = reply.metadata.src_node_id  # a reply to a reply would travel down
    return leak


@pytest.mark.parametrize(
    ("kind", "report"),
    [
        *[("id", "string"), ("text", "string"), ("half a text, in capitals", "string")],
        *[
            ("chunk row", "vector"),
            ("chunk column", "vector"),
            ("shifted and scaled half-precision row", "vector"),
        ],
        *[
            ("embedding in a metric", "vector"),
            ("trace in a metric", "trace"),
            ("trace in scalars", "trace"),
        ],
        ("new key", "undeclared key"),
    ],
)
def test_a_planted_leak_is_found(dance, secrets, whitelist, kind, report):
    """In a reply that holds none: `test_an_honest_reply_holds_none_of_them`."""
    found = leaks(planted(dance, secrets, kind), secrets, whitelist)
    assert any(line.startswith(report) for line in found)


def test_an_honest_reply_holds_none_of_them(dance, secrets, whitelist):
    assert leaks(dance.replies("train")[0], secrets, whitelist) == []


def test_a_leaking_error_is_found(dance, secrets, whitelist):
    reason = f"cannot read node {dance.data(0).ids()[0]}"
    assert leaks(Message(Error(0, reason), reply_to=dance.messages[0]), secrets, whitelist)


def test_a_leaking_method_is_found(run, secrets, whitelist, monkeypatch):
    from dance_flwr.federation.client.client import Client

    honest = Client.train

    def leaking(self, state, info, **options):
        trained, report = honest(self, state, info, **options)
        trained = {k: v.clone() for k, v in trained.items()}
        trained["backbone.first.lin.weight"][7] = self.data.table.nodes[info.round]
        return trained, report

    monkeypatch.setattr(Client, "train", leaking)
    finished = run(rounds=1)
    assert all(
        "vector of the text bank" in leaks(reply, secrets, whitelist)
        for reply in finished.replies("train")
    )


def test_under_masks_a_client_opens_files_of_its_own_folder_only(masked):
    _, audit, trace = masked
    assert audit.refused == [] and (trace is None or trace.refused == [] != trace.seen)


@pytest.mark.parametrize(
    "key",
    [
        *({"backbone": name} for name in BACKBONES.names() if name != "gcn"),
        {"smoothing": "correct-and-smooth"},
    ],
    ids=lambda key: next(iter(key.values())),
)
def test_with_every_layer_a_client_opens_files_of_its_own_folder_only(run, traced, key):
    _, audit, trace = watch(run, traced, **key, seed=47)
    assert audit.refused == [] and (trace is None or trace.refused == [] != trace.seen)


def test_loading_libraries_opens_nothing_of_any_client(traced):
    if traced is None:
        pytest.skip(why_not())
    root, targets = str(data_root(RunConfig())), [access.target for access in traced.loading]
    assert len(targets) > 1000 and not [target for target in targets if root in target]


def test_the_privacy_page_tells_what_leaves_a_client(run, masked):
    """Its table is what `python -m docs.tables.what_leaves` makes of such messages."""
    page = (PROJECT / "docs" / "privacy.md").read_text(encoding="utf-8")
    table = page.partition("<!-- leaves -->")[2].partition("<!-- /leaves -->")[0]
    assert table.strip() == what_leaves.table(run(rounds=2).messages, masked[0].messages)


@pytest.fixture(scope="module")
def asked(run):
    """The first message to train of a run, its client's context, and its and another's folder."""
    message, context = first_training(run, rounds=1)
    folder, client = config_of(message)[keys.PARTITION_DIR], context.node_config[keys.PARTITION_ID]
    return message, context, (f"{folder}/client-{client}", f"{folder}/client-{(client + 1) % 3}")


@pytest.mark.parametrize("leak", ["", *LEAKS])
def test_a_planted_access_is_seen_by_the_kernel(asked, traced, leak):
    if traced is None:
        pytest.skip(why_not())
    message, context, folders = asked
    traced.forget()
    assert not traced(message, context, leak, folders).has_error()
    assert found(traced.refused, leak) == bool(leak), traced.refused


@pytest.mark.parametrize("leak", ["", *LEAKS])
def test_a_planted_access_is_seen_by_python_where_python_makes_it(asked, audit, leak):
    message, context, folders = asked
    with in_training(leak, folders):
        audit.see(message)
        reply = client_app.app(message, deepcopy(context))
        audit.see(reply)
    assert not reply.has_error()
    refused = [access for _, access in audit.refused]
    assert found(refused, leak) == (leak not in ("", *BELOW_PYTHON)), refused


def found(refused, leak):
    """Whether the trace of a leak is among what was refused; without a leak, whether any is."""
    traces = [" ".join(access) for access in refused]
    return any(LEAKS[leak][1] in trace for trace in traces) if leak else bool(traces)
