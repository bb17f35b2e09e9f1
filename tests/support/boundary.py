"""The privacy boundary: what messages may hold, and what a client may open, for any method.

A test module inherits from `Boundary` and parametrises its class over `method`, in one group of
pytest-xdist.
"""

import hashlib
import json
import re
import sys
from copy import copy
from types import MappingProxyType

import pytest
from flwr.common.serde import message_to_proto

import client_app
from dance_flwr.config.plugins import METHODS
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.wire import keys
from support.accesses import READ
from support.audit import Audit
from support.graphs import TEXT_DIM, WORDS
from support.project import PROJECT
from support.searching import Secrets, holds_vector, runs_in, secrets_of, sequences
from support.tracing import Traced, why_not

DOWN, UP = "down", "up"
SCHEMA = json.loads((PROJECT / "tests" / "golden" / "schema.json").read_text("utf-8"))
SCHEMA = SCHEMA["schema"]["messages"]
ENTRY = re.compile(r"(?P<kind>\S+) (?P<way>up|down) (?P<record>[^/:]+)(/(?P<key>.+))?: .+")


def entries(way, kind, **records):
    """(direction, type, record, key) of records and their keys; "_" in a name stands for "-"."""
    return {
        (way, kind, record.replace("_", "-"), key)
        for record, keys in records.items()
        for key in ("", *keys)
    }


PER_CLASS = ("true-positives", "predicted", "actual")
# Sums at 25 temperatures, and at each of them in 15 bins, whatever the number of nodes.
CALIBRATION = {"val-calibration": 25, "test-calibration": 25 * 15}


def scored(view):
    """Hits of a view, also of the model that a training starts from."""
    val, test = (f"{part}-correct-{view}" for part in ("val", "test"))
    return entries(UP, "evaluate", metrics=(val, test)) | entries(UP, "train", metrics=(val,))


def recorded(method):
    """The entries of messages of a method of this package; of another, those that all have.

    `tests/test_protocol.py` fails where a run has others, in either direction: a new key is thought
    about, raises PROTOCOL, and is recorded there.
    """
    base, own = SCHEMA["fedavg-full"], SCHEMA.get(method, [])
    marked = {sign: {line[2:] for line in own if line.startswith(f"{sign} ")} for sign in "+-"}
    found = map(ENTRY.fullmatch, {*base} - marked["-"] | marked["+"])
    return {(*entry.group("way", "kind", "record"), entry["key"] or "") for entry in found if entry}


def allowed(config, added=frozenset()):
    """The whitelist of a run: its method's keys, those added, and the entries of its model."""
    model = initial_model(shape_of(TEXT_DIM, len(WORDS), config), config).state_dict()
    travels = ((way, kind) for way in (DOWN, UP) for kind in ("train", "evaluate"))
    arrays = set().union(*(entries(*way, arrays=model) for way in travels))
    arrays -= entries(UP, "evaluate", arrays=model)
    if config.ema_decay:  # the model to validate is another one than that to train
        arrays |= entries(DOWN, "train", deployed=model)
    return recorded(config.method) | added | arrays


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


@pytest.fixture(scope="class")
def watched(request, method, run, traced):
    """A run of two rounds, with what its clients opened."""
    seed = 50 + METHODS.names().index(method)  # folders that were not opened before
    return watch(run, traced, method=method, seed=seed, **request.cls.options)


class Boundary:
    """The boundary of one method."""

    added = MappingProxyType({})  # method -> its keys beside those that are recorded
    options = MappingProxyType({})  # of the run

    def whitelist(self, config):
        return allowed(config, self.added.get(config.method, frozenset()))

    def test_no_message_holds_text_ids_embeddings_or_traces(self, watched):
        finished, *_ = watched
        secrets, whitelist = secrets_of(finished), self.whitelist(finished.config)
        assert len(secrets.strings) > 200 and len(secrets.vectors) > 200
        assert len(secrets.traces) > 20 or finished.config.method != "dance"
        seen, ways, scanned = set(), set(), set()
        for message in finished.messages:
            content = message_to_proto(message).content.SerializeToString()
            if content not in seen:
                assert leaks(message, secrets, whitelist, scanned) == [], (
                    message.metadata.message_type
                )
            seen.add(content)
            ways.add((message.metadata.message_type, bool(message.metadata.src_node_id)))
        assert len(seen) > 12
        assert {(kind, not up) for kind, up in ways} == ways, (
            "every kind of message in both directions"
        )

    def test_exactly_the_declared_keys_occur(self, watched):
        """An unknown key fails, and so does a declared one that never occurs."""
        finished, *_ = watched
        seen = set().union(*map(keys_of, finished.messages))
        whitelist = self.whitelist(finished.config)
        assert sorted(seen - whitelist) == [] and sorted(whitelist - seen) == []

    def test_models_have_exactly_the_names_shapes_and_types_of_the_initial_one(self, watched):
        finished, *_ = watched
        shape = shape_of(TEXT_DIM, len(WORDS), finished.config)
        expected = {
            name: (tuple(t.shape), t.dtype)
            for name, t in initial_model(shape, finished.config).state_dict().items()
        }
        models = [m for m in finished.messages if m.has_content() and "arrays" in m.content]
        assert len(finished.replies("train")) == 6 and len(models) == 2 * 6 + 3 + 3
        for message in models:
            arrays = message.content.array_records["arrays"].to_torch_state_dict()
            found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in arrays.items()}
            assert found == expected

    def test_metrics_are_scalars_or_of_a_length_that_no_node_decides(self, watched):
        finished, *_ = watched
        for kind in ("train", "evaluate"):
            for reply in finished.replies(kind):
                for key, value in reply.content.metric_records["metrics"].items():
                    size = len(WORDS) if key.endswith(PER_CLASS) else CALIBRATION.get(key)
                    assert len(value) == size if size else isinstance(value, int | float), key

    def test_a_client_opens_files_of_its_own_folder_only(self, watched):
        """The clients of this process, as far as Python sees what they open."""
        finished, audit, _ = watched
        assert audit.refused == []
        for client in range(bool(not why_not()), finished.config.clients):  # those of this process
            opened = {
                access.target.rpartition("/")[2] for who, access in audit.seen if who == client
            }
            assert {"client.json", "labels.npy", "chunk_embeddings.npy"} <= opened

    def test_the_kernel_sees_a_client_open_files_of_its_own_folder_only(self, watched, traced):
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
