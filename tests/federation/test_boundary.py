"""The privacy boundary: no message holds what must stay with a client, and a client opens its own
files only.
"""

import hashlib
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

from dance_flwr.config.plugins import METHODS
from dance_flwr.dance.packs import Packs
from dance_flwr.federation.client.client import initial_model, shape_of

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
    "device",
)
PHASES = tuple(
    f"seconds-{phase}" for phase in ("forward", "nodes", "text", "topology", "packs", "train")
)
REFRESH = (
    "condensed-nodes",
    *(f"evidence-{what}" for what in ("neighbours", "chunks", "tokens", "supervised")),
)
PER_CLASS = ("true-positives", "predicted", "actual")
COUNTS = tuple(f"{part}-{name}" for part in ("val", "test") for name in ("total", *PER_CLASS))


def hits(*views):
    return tuple(f"{part}-correct-{view}" for part in ("val", "test") for view in views)


BASE = (
    entries(DOWN, "query.hello", config=())
    | entries(UP, "query.hello", config=("partition", "owns_data", "code"))
    | entries(DOWN, "query.describe", config=("partition-dir",))
    | entries(UP, "query.describe", config=SCHEMA)
    | entries(DOWN, "train", config=(*RUN, "clipping-norm"), arrays=())
    | entries(UP, "train", metrics=("num-examples", "loss", *PHASES, *REFRESH), arrays=())
    | entries(DOWN, "evaluate", config=(*RUN, "final"), arrays=())
    | entries(UP, "evaluate", metrics=("num-examples", *COUNTS, *hits("deployed")))
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
    "dance": entries(UP, "evaluate", metrics=hits("plain", "fused")),
    "fedavg-full": set(),
    "fedavg-rotating": set(),
    "self-training": set(),
    "local-only": set(),
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
}


def allowed(config):
    """The whitelist of a run: its method's keys, and the names of the entries of its model."""
    model = initial_model(shape_of(384, len(WORDS), config), config).state_dict()
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


@dataclass
class Secrets:
    """What belongs to the clients: strings, vectors of the text bank, choices of the selection."""

    strings: list[bytes]
    vectors: np.ndarray
    traces: list[np.ndarray] = field(default_factory=list)


def secrets_of(finished) -> Secrets:
    """Ids, texts, words, summaries; chunk embeddings and t_u; cores, selected indices, weights."""
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


def runs_in(values: np.ndarray, traces: list[np.ndarray]) -> list[np.ndarray]:
    """Those of `traces` that stand in `values` as a contiguous run."""
    order = np.argsort(values, kind="stable")
    ordered, found = values[order], []
    for trace in traces:
        margin = 1e-7 + 1e-5 * np.abs(trace)
        low, high = np.searchsorted(ordered, [trace[0] - margin[0], trace[0] + margin[0]])
        starts = order[low:high]
        starts = starts[starts <= len(values) - len(trace)]
        for place in range(1, len(trace)):
            near = np.abs(values[starts + place] - trace[place]) <= margin[place]
            starts = starts[near]
        if len(starts):
            found.append(trace)
    return found


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


def leaks(message, secrets: Secrets, whitelist, scanned=None) -> list[str]:
    """What of the secrets, or beyond the declared keys, is in a message.

    `scanned` holds digests of sequences that need no second look: a model is sent to all clients.
    """
    scanned = set() if scanned is None else scanned
    data = message_to_proto(message).SerializeToString()
    # Arrays are serialised as .npy; strings are searched in everything, in any case of letters.
    found = [f"string {text[:20]!r}" for text in secrets.strings if text.lower() in data.lower()]
    for values in sequences(message):
        digest = hashlib.sha256(values.tobytes()).digest()
        if digest not in scanned:
            found += ["vector of the text bank"] * holds_vector(values, secrets.vectors)
            found += [f"trace {trace[:4]}" for trace in runs_in(values, secrets.traces)]
        scanned.add(digest)
    return [*found, *(f"undeclared key {key}" for key in sorted(keys_of(message) - whitelist))]


@pytest.fixture(scope="module", params=METHODS.names())
def watched(request, run, tiny):
    """A run of two rounds per method, with the files that its clients opened."""
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch.installed(patch)
        seed = 50 + METHODS.names().index(request.param)  # folders that were not opened before
        finished = run(method=request.param, rounds=2, seed=seed, on_message=watch.see)
        watch.on = False
    return finished, watch


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
    assert seen == allowed(finished.config) | added


def test_models_have_exactly_the_names_shapes_and_types_of_the_initial_one(finished):
    shape = shape_of(384, len(WORDS), finished.config)
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
    shape = shape_of(384, len(WORDS), finished.config)
    expected = {
        name: (tuple(t.shape), dtype)
        for name, t in initial_model(shape, finished.config).state_dict().items()
    }
    for reply in finished.replies("train"):
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert {name: (tuple(t.shape), t.dtype) for name, t in arrays.items()} == expected
        scales = reply.content.array_records.get("scales", {})
        assert [array.shape for array in scales.values()] == [(len(expected),)] * len(scales)


def test_metrics_are_scalars_or_one_count_per_class(finished):
    for kind in ("train", "evaluate"):
        for reply in finished.replies(kind):
            for key, value in reply.content.metric_records["metrics"].items():
                per_class = key.endswith(PER_CLASS)
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
        flat[1000:1384] = (0.01 * pooled).astype(np.float16)
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
    assert leaks(dance.replies("train")[0], secrets, whitelist) == []
    found = leaks(planted(dance, secrets, kind), secrets, whitelist)
    assert any(line.startswith(report) for line in found)


def test_a_leaking_error_is_found(dance, secrets, whitelist):
    reason = f"cannot read node {dance.site(0).ids()[0]}"
    assert leaks(Message(Error(0, reason), reply_to=dance.messages[0]), secrets, whitelist)


def test_a_leaking_method_is_found(run, secrets, whitelist, monkeypatch):
    from dance_flwr.federation.client.client import Client

    honest = Client.train

    def leaking(self, state, info, **options):
        trained, report = honest(self, state, info, **options)
        trained = {k: v.clone() for k, v in trained.items()}
        trained["backbone.first.lin.weight"][7] = self.site.table.nodes[info.round]
        return trained, report

    monkeypatch.setattr(Client, "train", leaking)
    finished = run(rounds=2)
    assert all(
        "vector of the text bank" in leaks(reply, secrets, whitelist)
        for reply in finished.replies("train")
    )


class Watch:
    """Files and folders that are opened while a client answers a message."""

    def __init__(self):
        self.client, self.opened, self.on = None, [], True
        sys.addaudithook(self.hook)

    @classmethod
    def installed(cls, patch):
        """A watch that also sees what opens files below Python, where no audit hook does."""
        watching, read = cls(), pyarrow.parquet.read_table

        def seen(source, *args, **kwargs):
            watching.hook("open", (source,))
            return read(source, *args, **kwargs)

        patch.setattr(pyarrow.parquet, "read_table", seen)
        return watching

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
    watching = Watch.installed(monkeypatch)
    yield watching
    watching.on = False


def test_a_client_opens_files_of_its_own_folder_only(watched, tiny):
    finished, watch = watched
    root = finished.partition.parent.parent
    outside, inside = outside_their_folder(watch, [root, tiny, finished.folder], finished.partition)
    assert outside == []
    for client in range(3):
        opened = {path.rpartition("/")[2] for who, path in watch.opened if who == client}
        assert {"client.json", "nodes.parquet", "labels.npy", "chunk_embeddings.npy"} <= opened
    assert inside > 20


def test_a_client_that_reads_a_neighbours_folder_is_found(run, tiny, watch, monkeypatch):
    from dance_flwr.methods.dance.client import Dance

    honest = Dance.train

    def curious(self, model, site, config, info):
        other = site.folder.parent / f"client-{(site.card.client + 1) % 3}"
        assert json.loads((other / "client.json").read_text())
        return honest(self, model, site, config, info)

    monkeypatch.setattr(Dance, "train", curious)
    finished = run(rounds=1, on_message=watch.see)
    assert len(outside_their_folder(watch, [finished.partition], finished.partition)[0]) == 3
