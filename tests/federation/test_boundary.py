"""The privacy boundary: no message holds what must stay with a client, and a client opens its own
files only.
"""

import hashlib
import sys
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import urllib3.util.connection  # noqa: F401  # its first import binds a socket to try IPv6
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from support.accesses import READ
from support.asking import first_training
from support.audit import Audit
from support.graphs import EVERY_ROUND, TEXT_DIM, WORDS, knowledge_graph
from support.planted import BELOW_PYTHON, LEAKS, in_training
from support.project import PROJECT
from support.searching import Secrets, holds_vector, runs_in, secrets_of, sequences
from support.tracing import Traced, why_not

import client_app
from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import BACKBONES, METHODS
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import config_of
from docs.tables import what_leaves

# One worker: its process under strace, which loads every library, is started once.
pytestmark = pytest.mark.xdist_group("boundary")

# The whitelist: for each method the exact set of (direction, type of message, record, key) that
# occurs, as a base that is common to all methods and what each one adds. An empty key stands for
# the record itself. A new key must be added here, and thought about.
DOWN, UP = "down", "up"


def entries(way, kind, **records):
    """(direction, type, record, key) of records and their keys; "_" in a name stands for "-"."""
    return {
        (way, kind, record.replace("_", "-"), key)
        for record, keys in records.items()
        for key in ("", *keys)
    }


RUN = ("run", "partition-dir", "server-round")
SCHEMA = (
    *("class_names", "text_dim", "clients", "num_nodes", "encoder_sha256", "encoder_tokens"),
    *("device", "data_sha256", "reading_votes"),
)
FITTED = ("temperature", "scored-nodes")  # of the probabilities, in the last message
READING = ("text-pooling", "edge-gates")  # what the federation chose, of methods that let it
PHASES = tuple(
    f"seconds-{phase}" for phase in ("forward", "nodes", "text", "topology", "packs", "train")
)
REFRESH = (
    "condensed-nodes",
    *(f"evidence-{what}" for what in ("neighbours", "chunks", "tokens", "supervised", "packs")),
)
PER_CLASS = ("true-positives", "predicted", "actual")
TOKENS = tuple(
    f"tokens-{count}"
    for count in (
        *("evidence-chunks", "evidence-tokens", "distinct-chunks", "distinct-tokens"),
        *(f"llm-{how}-calls" for how in ("fresh", "cached", "failed", "capped")),
        *("llm-fresh-prompt", "llm-fresh-completion", "llm-cached-prompt", "llm-cached-completion"),
        "llm-milliseconds",
    )
)
MODEL = ("llm", "tokeniser")  # names, empty where no language model was asked
COUNTS = tuple(f"{part}-{name}" for part in ("val", "test") for name in ("total", *PER_CLASS))
# Sums at 25 temperatures, and at each of them in 15 bins, whatever the number of nodes.
CALIBRATION = {"val-calibration": 25, "test-calibration": 25 * 15}


def hits(*views):
    return tuple(f"{part}-correct-{view}" for part in ("val", "test") for view in views)


BASE = (
    entries(DOWN, "query.hello", config=())
    | entries(UP, "query.hello", config=("partition", "owns_data", "protocol"))
    | entries(DOWN, "query.describe", config=("partition-dir",))
    | entries(UP, "query.describe", config=SCHEMA)
    | entries(DOWN, "train", config=(*RUN, "clipping-norm"), arrays=())
    | entries(UP, "train", metrics=("num-examples", "loss", *PHASES, *REFRESH), arrays=())
    | entries(DOWN, "evaluate", config=(*RUN, "final"), arrays=())
    | entries(
        UP,
        "evaluate",
        metrics=("num-examples", *COUNTS, *hits("deployed"), *CALIBRATION, *TOKENS),
        config=MODEL,
    )
)
# A condensed graph, uploaded in the first round that a client takes part in.
GRAPH = ("features", "adjacency", "labels")
ONCE = entries(DOWN, "train", config=("needs-initial-upload",))
# fedsage: the layers of a generator, and the batch of nodes that it is tried on.
MAKER = tuple(f"{layer}.{part}" for layer in (0, 2, 5) for part in ("weight", "bias"))
BATCH = ("latents", "counts")


def of_peers(*names):
    return tuple(f"client-{client}/{name}" for client in range(3) for name in names)


ADDED = {
    "dance": entries(UP, "evaluate", metrics=hits("plain", "fused"))
    | entries(DOWN, "train", config=READING)
    | entries(DOWN, "evaluate", config=READING)
    | entries(DOWN, "query.seal", config=("run", "partition-dir", *READING, *FITTED))
    | entries(UP, "query.seal", config=("evidence_sha256",)),
    "fedavg-full": set(),
    "fedavg-rotating": set(),
    "self-training": set(),
    "local-only": set(),
    "fedper": set(),
    "ditto": set(),
    "random-core": set(),
    "rotating-core": set(),
    "herding-core": set(),
    "k-center-core": set(),
    "gcond": set(),
    "sfgc": set(),
    "fedgta": entries(UP, "train", statistics=("moments", "confidence")),
    "fedtad": entries(UP, "train", statistics=("reliability",)),
    "fedgvd": entries(UP, "train", statistics=GRAPH)
    | entries(DOWN, "train", server_payload=("logits",))
    | ONCE,
    "fedsage": entries(UP, "query.exchange", exchanged=(*MAKER, *BATCH, *of_peers(*MAKER)))
    | entries(
        DOWN,
        "query.exchange",
        config=("run", "partition-dir", "step"),
        exchanged=(*MAKER, *of_peers(*MAKER, *BATCH)),
    ),
    "fedgm": entries(UP, "train", statistics=("weights", "biases", "counts", *GRAPH))
    | entries(DOWN, "train", server_payload=("weight", "bias"))
    | ONCE,
    "fedc4": entries(UP, "train", statistics=("embeddings", *GRAPH))
    | entries(DOWN, "train", server_payload=GRAPH)
    | ONCE,
    "llm4rgnn": entries(UP, "evaluate", metrics=hits("raw")),
    "llm4rgnn-cosine": entries(UP, "evaluate", metrics=hits("raw")),
    "llata": entries(UP, "evaluate", metrics=hits("raw")),
    "llata-cosine": entries(UP, "evaluate", metrics=hits("raw")),
    "llata-propagation": entries(UP, "evaluate", metrics=hits("raw")),
    # Predictor and feedback are entries of the model, of which secure aggregation hides each one.
    "llm4fgl": entries(UP, "evaluate", metrics=hits("raw")),
    "llm4fgl-recombined": entries(UP, "evaluate", metrics=hits("raw")),
}


def allowed(config):
    """The whitelist of a run: its method's keys, and the names of the entries of its model."""
    model = initial_model(shape_of(TEXT_DIM, len(WORDS), config), config).state_dict()
    travels = ((way, kind) for way in (DOWN, UP) for kind in ("train", "evaluate"))
    arrays = set().union(*(entries(*way, arrays=model) for way in travels))
    arrays -= entries(UP, "evaluate", arrays=model)
    return BASE | ADDED[config.method] | arrays


def keys_of(message):
    """(direction, type, record, key) of everything in a message."""
    way = UP if message.metadata.src_node_id else DOWN
    if not message.has_content():
        return set()
    records = {name.replace("-", "_"): record for name, record in message.content.items()}
    return entries(way, message.metadata.message_type, **records)


def leaks(message, secrets: Secrets, whitelist, scanned=None) -> list[str]:
    """What of the secrets, or beyond the declared keys, is in a message.

    `scanned` holds digests of sequences that need no second look: a model is sent to all clients.
    """
    scanned = set() if scanned is None else scanned
    data = message_to_proto(message).SerializeToString().lower()
    # Arrays are serialised as .npy; strings are searched in everything, in any case of letters.
    found = [f"string {text[:20]!r}" for text in secrets.strings if text.lower() in data]
    for values in sequences(message):
        digest = hashlib.sha256(values.tobytes()).digest()
        if digest not in scanned:
            found += ["vector of the text bank"] * holds_vector(values, secrets.vectors)
            found += [f"trace {trace[:4]}" for trace in runs_in(values, secrets.traces)]
        scanned.add(digest)
    return [*found, *(f"undeclared key {key}" for key in sorted(keys_of(message) - whitelist))]


class Apart:
    """The ClientApp, with client 0 in its own process where processes can be traced."""

    def __init__(self, traced, audit):
        self.traced, self.audit = traced, audit

    def __call__(self, message, context):
        if self.traced is None or context.node_config[keys.PARTITION_ID]:
            return client_app.app(message, context)
        self.audit.close()  # what this process does for client 0 is to ask the other one
        return self.traced(message, context)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A client's process under strace; None where there can be none, see `why_not`."""
    process = None if why_not() else Traced(tmp_path_factory.mktemp("traced"))
    yield process
    if process is not None:
        process.close()


@pytest.fixture
def audit():
    watching = Audit()
    yield watching
    watching.close()


def watch(run, traced, **options):
    """A run, what its clients in this process accessed, and what client 0 did."""
    audit = Audit()
    if traced is not None:
        traced.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # code is there to be read
        finished = run(rounds=2, app=Apart(traced, audit), on_message=audit.see, **options)
    audit.close()
    return finished, audit, copy(traced)


def clients_here(finished):
    """The clients that ran in this process."""
    return range(bool(not why_not()), finished.config.clients)


@pytest.fixture(scope="module", params=METHODS.names())
def watched(request, run, traced):
    """A run of two rounds per method, with what its clients opened."""
    seed = 50 + METHODS.names().index(request.param)  # folders that were not opened before
    # As many steps of matching as are needed for a condensed graph to be no part of the data.
    return watch(run, traced, method=request.param, seed=seed, condense_steps=10)


@pytest.fixture(scope="module")
def masked(run, traced):
    """The same of the default method under secure aggregation."""
    return watch(run, traced, privacy_secure_aggregation=True, seed=49)


@pytest.fixture(scope="module")
def finished(watched):
    return watched[0]


@pytest.fixture(scope="module")
def secrets(dance):
    return secrets_of(dance)


@pytest.fixture(scope="module")
def whitelist(dance):
    return allowed(dance.config)


def test_every_method_has_a_whitelist():
    assert list(ADDED) == list(METHODS.names())


def test_no_message_holds_text_ids_embeddings_or_traces(finished):
    secrets, whitelist = secrets_of(finished), allowed(finished.config)
    assert len(secrets.strings) > 200 and len(secrets.vectors) > 200
    assert len(secrets.traces) > 20 or finished.config.method != "dance"
    seen, ways, scanned = set(), set(), set()
    for message in finished.messages:
        content = message_to_proto(message).content.SerializeToString()
        if content not in seen:
            assert leaks(message, secrets, whitelist, scanned) == [], message.metadata.message_type
        seen.add(content)
        ways.add((message.metadata.message_type, bool(message.metadata.src_node_id)))
    assert len(seen) > 12
    assert {(kind, not up) for kind, up in ways} == ways, "every kind of message in both directions"


def test_exactly_the_declared_keys_occur(finished):
    """In both directions: an unknown key fails, and so does a declared one that never occurs."""
    seen = set().union(*map(keys_of, finished.messages))
    whitelist = allowed(finished.config)
    assert sorted(seen - whitelist) == [] and sorted(whitelist - seen) == []


@pytest.mark.parametrize(
    ("keys", "added"),
    [
        ({"strategy": "fedprox"}, entries(DOWN, "train", config=("proximal-mu",))),
        (
            {
                **{"privacy_dp": "central", "privacy_clipping": "adaptive"},
                **{"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0},
            },
            entries(UP, "train", metrics=("unclipped",)),
        ),
        # One step per tensor, as 4 bytes each: no more than the update itself says.
        ({"upload_precision": "int8"}, entries(UP, "train", scales=("steps",))),
        ({"upload_precision": "float16"}, set()),
    ],
    ids=["fedprox", "adaptive-clipping", "int8", "float16"],
)
def test_a_setting_adds_its_own_key_and_no_other(run, keys, added):
    finished = run(method="fedavg-full", rounds=2, **keys)
    seen = set().union(*map(keys_of, finished.messages))
    # Under differential privacy nobody sends sums of probabilities.
    withheld = CALIBRATION if "privacy_dp" in keys else {}
    expected = allowed(finished.config) | added
    assert seen == {entry for entry in expected if entry[-1] not in withheld}


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


def test_models_have_exactly_the_names_shapes_and_types_of_the_initial_one(finished):
    shape = shape_of(TEXT_DIM, len(WORDS), finished.config)
    expected = {
        name: (tuple(t.shape), t.dtype)
        for name, t in initial_model(shape, finished.config).state_dict().items()
    }
    models = [m for m in finished.messages if m.has_content() and "arrays" in m.content]
    assert len(finished.replies("train")) == 6 and len(models) == 2 * 6 + 6 + 3
    for message in models:
        arrays = message.content.array_records["arrays"].to_torch_state_dict()
        found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in arrays.items()}
        assert found == expected


@pytest.mark.parametrize(("precision", "dtype"), [("int8", torch.int8), ("float16", torch.float16)])
def test_a_rounded_update_has_exactly_the_names_and_shapes_of_the_model(run, precision, dtype):
    finished = run(method="fedavg-full", rounds=2, upload_precision=precision)
    shape = shape_of(TEXT_DIM, len(WORDS), finished.config)
    expected = {
        name: (tuple(t.shape), dtype)
        for name, t in initial_model(shape, finished.config).state_dict().items()
    }
    for reply in finished.replies("train"):
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert {name: (tuple(t.shape), t.dtype) for name, t in arrays.items()} == expected
        scales = reply.content.array_records.get("scales", {})
        assert [array.shape for array in scales.values()] == [(len(expected),)] * len(scales)


def test_metrics_are_scalars_or_of_a_length_that_no_node_decides(finished):
    for kind in ("train", "evaluate"):
        for reply in finished.replies(kind):
            for key, value in reply.content.metric_records["metrics"].items():
                size = len(WORDS) if key.endswith(PER_CLASS) else CALIBRATION.get(key)
                assert len(value) == size if size else isinstance(value, int | float), key


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


def test_a_client_opens_files_of_its_own_folder_only(watched):
    """The clients of this process, as far as Python sees what they open."""
    finished, audit, _ = watched
    assert audit.refused == []
    for client in clients_here(finished):
        opened = {access.target.rpartition("/")[2] for who, access in audit.seen if who == client}
        assert {"client.json", "labels.npy", "chunk_embeddings.npy"} <= opened


def test_the_kernel_sees_a_client_open_files_of_its_own_folder_only(watched, traced):
    """Client 0 is a process of its own, all of whose system calls on files are known."""
    if traced is None:
        pytest.skip(why_not())
    finished, _, trace = watched
    assert trace.refused == []
    opened = {access.target for access in trace.seen if access.kind == READ}
    names = {path.rpartition("/")[2] for path in opened}
    assert {"client.json", "nodes.parquet", "labels.npy", "chunk_embeddings.npy"} <= names
    own = str(finished.partition / "client-0")
    assert sum(path.startswith(own) for path in opened) >= 8


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
