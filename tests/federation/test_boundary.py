"""The privacy boundary: no message holds what must stay with a client, and a client opens its own
files only.
"""

import json
import sys
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from scipy.signal import fftconvolve
from support.graphs import WORDS

from dance_flwr.dance.packs import Packs
from dance_flwr.federation.client.client import initial_model, shape_of

# Per message type and direction, every key that may occur; a new key must be added here, and
# thought about.
COUNTS = {
    f"{part}-{name}"
    for part in ("val", "test")
    for name in ("total", "true-positives", "predicted", "actual")
}
VIEWS = {
    f"{part}-correct-{view}"
    for part in ("val", "test")
    for view in ("plain", "core", "fused", "deployed")
}
PHASES = {
    f"seconds-{phase}" for phase in ("forward", "nodes", "text", "topology", "packs", "train")
}
REFRESH = {
    "condensed-nodes",
    *(f"evidence-{what}" for what in ("neighbours", "chunks", "tokens", "supervised")),
}
# Of fedgta, fedtad and fedgvd, as their cards say.
STATISTICS = {"moments", "confidence", "reliability", "features", "adjacency", "labels"}
GIVEN = {"logits"}  # of fedgvd
RUN = {"run", "partition-dir", "server-round"}
SCHEMA = {
    "class_names",
    "text_dim",
    "clients",
    "num_nodes",
    "encoder_sha256",
    "encoder_tokens",
    "device",
}
KEYS = {
    ("query.hello", "down"): {"config": set()},
    ("query.hello", "up"): {"config": {"partition", "owns_data", "code"}},
    ("query.describe", "down"): {"config": {"partition-dir"}},
    ("query.describe", "up"): {"config": SCHEMA},
    ("train", "down"): {"config": RUN | {"clipping-norm", "first"}, "arrays": None, "given": GIVEN},
    ("query.exchange", "down"): {"config": {"run", "partition-dir", "step"}, "exchanged": None},
    ("query.exchange", "up"): {"exchanged": None},
    ("train", "up"): {
        "metrics": {"num-examples", "loss"} | PHASES | REFRESH,
        "arrays": None,
        "statistics": STATISTICS,
    },
    ("evaluate", "down"): {"config": RUN | {"final"}, "arrays": None},
    ("evaluate", "up"): {"metrics": {"num-examples"} | COUNTS | VIEWS},
}
METHODS = ["dance", "fedavg-full", "local-only", "fedgta", "fedtad", "fedgvd", "fedsage"]
EXCHANGED = {("query.exchange", "down"), ("query.exchange", "up")}  # of fedsage


@dataclass
class Secrets:
    """What belongs to the clients: strings, vectors of the text bank, and what the selection chose."""

    strings: list[bytes]
    vectors: np.ndarray
    traces: list[np.ndarray] = field(default_factory=list)


def secrets_of(finished) -> Secrets:
    """Ids, texts, words, summaries; chunk embeddings and t_u; cores, selected indices and weights."""
    strings, vectors, traces = {word for words in WORDS.values() for word in words}, [], []
    for client in range(finished.config.clients):
        site = finished.site(client)
        ids, texts = site.ids(), site.texts()
        strings |= {*ids, *texts}
        owner = np.repeat(np.arange(len(texts)), np.diff(site.bank.ptr))
        strings |= {texts[u][a:b] for u, (a, b) in zip(owner, site.bank.spans, strict=True)}
        vectors += [site.table.chunks.numpy(), site.table.nodes.numpy()]
        for path in finished.store(client).all_packs():
            packs = Packs.load(path)
            traces += [packs.nodes, packs.confidence]
            for ptr, names in (
                (packs.neighbour_ptr, ("neighbours", "neighbour_weights")),
                (packs.chunk_ptr, ("chunks", "chunk_weights")),
            ):
                traces += [
                    row for name in names for row in np.split(getattr(packs, name), ptr[1:-1])
                ]
        example = finished.store(client).evidence_folder / "example.txt"
        if example.is_file():
            strings.add(example.read_text().partition("summary     ")[2].splitlines()[0])
    return Secrets(
        strings=[text.encode() for text in strings if text],
        vectors=np.concatenate(vectors).astype(np.float64),
        traces=[row.astype(np.float64) for row in traces if len(row) >= 4],
    )


def holds_vector(values: np.ndarray, vectors: np.ndarray) -> bool:
    """Whether any contiguous run of `values` points where one of `vectors` ([m, d]) points, cosine
    above 0.999.

    Three random projections of all runs (one convolution each) and of all vectors leave few pairs
    to compare.
    """
    d = vectors.shape[1]
    if len(values) < d:
        return False
    square = np.concatenate([[0.0], np.cumsum(values**2)])
    norm = np.sqrt(np.maximum(square[d:] - square[:-d], 0)) + 1e-12
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = np.random.default_rng(0).standard_normal((3, d))
    runs = np.stack([fftconvolve(values, r[::-1], "valid") / norm for r in directions], axis=1)
    wanted = unit @ directions.T
    order = np.argsort(runs[:, 0])
    low = np.searchsorted(runs[order, 0], wanted[:, 0] - 0.05)
    high = np.searchsorted(runs[order, 0], wanted[:, 0] + 0.05)
    for vector, target, a, b in zip(unit, wanted, low, high, strict=True):
        near = order[a:b]
        near = near[(np.abs(runs[near] - target) < 0.05).all(axis=1)]
        if any(values[start : start + d] @ vector > 0.999 * norm[start] for start in near):
            return True
    return False


def holds_run(values: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether `wanted` stands in `values` as a contiguous run."""
    if len(values) < len(wanted):
        return False
    starts = np.flatnonzero(
        np.isclose(values[: len(values) - len(wanted) + 1], wanted[0], rtol=1e-5, atol=1e-7)
    )
    return any(
        np.allclose(values[i : i + len(wanted)], wanted, rtol=1e-5, atol=1e-7) for i in starts
    )


def sequences(message):
    """Every sequence of numbers in a message: arrays row by row and column by column, lists, and
    scalars in order.
    """
    if not message.has_content():
        return
    for record in message.content.array_records.values():
        for array in record.values():
            yield array.numpy().astype(np.float64).ravel()
            yield array.numpy().astype(np.float64).T.ravel()
    for record in (
        *message.content.metric_records.values(),
        *message.content.config_records.values(),
    ):
        numbers = [
            np.ravel(value)
            for value in record.values()
            if not np.issubdtype(np.asarray(value).dtype, np.str_)
        ]
        numbers = [
            row.astype(np.float64)
            for row in numbers
            if row.dtype != object and row.dtype.kind in "bif"
        ]
        yield from numbers
        if numbers:
            yield np.concatenate(numbers)


def keys_beyond(message) -> list[str]:
    """Records and keys that the table above does not allow in this message."""
    way = "up" if message.metadata.src_node_id else "down"
    allowed = KEYS[message.metadata.message_type, way]
    content = message.content
    extra = [name for name in content if name not in allowed]
    for name in content.keys() & allowed.keys():
        if allowed[name] is not None:
            extra += [key for key in content[name] if key not in allowed[name]]
    return extra


def leaks(message, secrets: Secrets) -> list[str]:
    """What of the secrets, or beyond the declared keys, is in a message."""
    data = message_to_proto(message).SerializeToString()
    # Arrays are serialised as .npy; strings are searched in everything, in any case of letters.
    found = [f"string {text[:20]!r}" for text in secrets.strings if text.lower() in data.lower()]
    for values in sequences(message):
        found += ["vector of the text bank"] * holds_vector(values, secrets.vectors)
        found += [f"trace {trace[:4]}" for trace in secrets.traces if holds_run(values, trace)]
    if message.has_content():
        found += [f"undeclared key {key}" for key in keys_beyond(message)]
    return found


@pytest.fixture(scope="module", params=METHODS)
def finished(request, run):
    return run(method=request.param, evaluate_every=2)


@pytest.fixture(scope="module")
def secrets(dance):
    return secrets_of(dance)


def test_no_message_holds_text_ids_embeddings_or_traces(finished):
    secrets = secrets_of(finished)
    assert len(secrets.strings) > 200 and len(secrets.vectors) > 200
    assert len(secrets.traces) > 20 or finished.config.method != "dance"
    seen = set()
    for message in finished.messages:
        content = message_to_proto(message).content.SerializeToString()
        if content not in seen:
            assert leaks(message, secrets) == [], message.metadata.message_type
        seen.add(content)
    assert len(seen) > 15


def test_every_declared_kind_of_message_occurs(finished):
    ways = {
        (m.metadata.message_type, "up" if m.metadata.src_node_id else "down")
        for m in finished.messages
    }
    assert ways == KEYS.keys() - (EXCHANGED if finished.config.method != "fedsage" else set())


def test_uploads_have_exactly_the_names_and_shapes_of_the_model(finished):
    shape = shape_of(384, len(WORDS), finished.config)
    expected = {
        name: tuple(t.shape)
        for name, t in initial_model(shape, finished.config).state_dict().items()
    }
    replies = finished.replies("train")
    assert len(replies) == 9
    for reply in replies:
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert {name: tuple(tensor.shape) for name, tensor in arrays.items()} == expected
        assert {tensor.dtype for tensor in arrays.values()} == {torch.float32}


def test_metrics_are_scalars_or_one_count_per_class(finished):
    for kind in ("train", "evaluate"):
        for reply in finished.replies(kind):
            for key, value in reply.content.metric_records["metrics"].items():
                per_class = key.endswith(("true-positives", "predicted", "actual"))
                assert len(value) == len(WORDS) if per_class else isinstance(value, int | float), (
                    key
                )


def planted(dance, secrets, kind):
    """A genuine training reply with one thing of a client put into it."""
    reply, site = dance.replies("train")[0], dance.site(0)
    ids, texts = site.ids(), site.texts()
    chunk, pooled = site.table.chunks[3].numpy(), site.table.nodes[5].numpy()
    arrays = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
    metrics, config = dict(reply.content.metric_records["metrics"]), {}
    if kind == "id":
        config["note"] = f"worst node {ids[4]}"
    elif kind == "text":
        config["note"] = texts[2]
    elif kind == "half a text, in capitals":
        config["note"] = texts[2][: len(texts[2]) // 2].upper()
    elif kind == "chunk row":
        arrays["fuse_text.weight"] = np.vstack([chunk, arrays["fuse_text.weight"][1:]])
    elif kind == "chunk column":
        arrays["fuse_text.weight"] = np.column_stack([arrays["fuse_text.weight"][:, 1:], chunk])
    elif kind == "shifted and scaled half-precision row":
        flat = arrays["fuse_text.weight"].ravel().copy()
        flat[1000:1384] = (0.01 * pooled).astype(np.float16)
        arrays["fuse_text.weight"] = flat.reshape(384, 384)
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
def test_a_planted_leak_is_found(dance, secrets, kind, report):
    assert leaks(dance.replies("train")[0], secrets) == []
    assert any(found.startswith(report) for found in leaks(planted(dance, secrets, kind), secrets))


def test_a_leaking_error_is_found(dance, secrets):
    reason = f"cannot read node {dance.site(0).ids()[0]}"
    assert leaks(Message(Error(0, reason), reply_to=dance.messages[0]), secrets)


def test_a_leaking_method_is_found(run, secrets, monkeypatch):
    from dance_flwr.federation.client.client import Client

    honest = Client.train

    def leaking(self, state, name, round_, *beside):
        trained, weight, report = honest(self, state, name, round_, *beside)
        trained = {k: v.clone() for k, v in trained.items()}
        trained["fuse_text.weight"][7] = self.site.table.nodes[round_]
        return trained, weight, report

    monkeypatch.setattr(Client, "train", leaking)
    finished = run(rounds=2)
    assert all(
        "vector of the text bank" in leaks(reply, secrets) for reply in finished.replies("train")
    )


class Watch:
    """Files and folders that are opened while a client answers a message."""

    def __init__(self):
        self.client, self.opened, self.on = None, [], True
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if (
            self.on
            and self.client is not None
            and event in ("open", "os.listdir", "os.scandir", "shutil.copyfile")
        ):
            self.opened.append((self.client, str(arguments[0])))

    def see(self, message):
        going_down = not message.metadata.src_node_id
        self.client = message.metadata.dst_node_id - 1 if going_down else None


def outside_their_folder(watch, roots, partition):
    """(client, path) of everything opened below `roots` that is not in the client's own folder."""
    inside = [
        (client, path) for client, path in watch.opened if any(str(root) in path for root in roots)
    ]
    return [
        entry for entry in inside if not entry[1].startswith(f"{partition}/client-{entry[0]}/")
    ], len(inside)


@pytest.fixture
def watch(monkeypatch):
    watching = Watch()
    read = pyarrow.parquet.read_table  # opens files below Python, where no audit hook sees them

    def seen(source, *args, **kwargs):
        watching.hook("open", (source,))
        return read(source, *args, **kwargs)

    monkeypatch.setattr(pyarrow.parquet, "read_table", seen)
    yield watching
    watching.on = False


@pytest.mark.parametrize("method", METHODS)
def test_a_client_opens_files_of_its_own_folder_only(run, tiny, watch, method):
    finished = run(
        method=method, seed=50 + METHODS.index(method), on_message=watch.see
    )  # folders not opened before
    root = finished.partition.parent.parent
    outside, inside = outside_their_folder(watch, [root, tiny, finished.folder], finished.partition)
    assert outside == []
    for client in range(3):
        opened = {path.rpartition("/")[2] for who, path in watch.opened if who == client}
        assert {"client.json", "nodes.parquet", "labels.npy", "chunk_embeddings.npy"} <= opened
    assert inside > 20


def test_a_client_that_reads_a_neighbours_folder_is_found(run, tiny, watch, monkeypatch):
    from dance_flwr.methods.dance import Dance

    honest = Dance.train

    def curious(self, model, site, config, info):
        other = site.folder.parent / f"client-{(site.card.client + 1) % 3}"
        assert json.loads((other / "client.json").read_text())
        return honest(self, model, site, config, info)

    monkeypatch.setattr(Dance, "train", curious)
    finished = run(rounds=1, on_message=watch.see)
    assert len(outside_their_folder(watch, [finished.partition], finished.partition)[0]) == 3
