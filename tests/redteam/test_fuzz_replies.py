"""A thousand replies that hypothesis altered: none ends a run of five while four answer well."""

import json
import logging
import math
from dataclasses import replace

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.quick import examples

import server_app
from dance_flwr import PROTOCOL
from dance_flwr.config.tree import flatten
from dance_flwr.errors import UserError
from dance_flwr.federation.server.checks import ReplyChecks, read_upload
from dance_flwr.federation.server.polling import MessageLog, ask
from dance_flwr.federation.server.replies import (
    read_counts,
    read_schema,
    read_training,
    sum_metrics,
)
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.methods import get_spec
from dance_flwr.metrics import Counts, Report, Tokens, accuracy, macro_f1
from dance_flwr.nn.calibration import BINS, TEMPERATURES
from dance_flwr.nn.model import ModelShape
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS, LIAR, NODES = 5, 3, 40
START = {"w": torch.ones(2, 3), "b": torch.zeros(2)}
KINDS = (keys.DESCRIBE, keys.TRAIN, keys.EVALUATE)

EXTREMES = st.sampled_from(
    [
        *(-1, 0, 1, NODES + 1, 10**12, 2**63, -(2**63), 10**5000),
        *(0.5, -0.5, 1e308, -1e308, math.nan, math.inf, -math.inf, 5e-324),
        *(True, "", "x" * 5000, "\x1b]0;x\x07", b"", b"\x80\x04"),
        *([], [1] * 4, [math.nan] * 3, [-1, 1, 0], [10**12] * 3, ["a"], [b"a"], [True]),
    ]
)
VALUES = st.one_of(
    EXTREMES,
    st.integers(-100, 100),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(-5, 50), max_size=6),
    st.lists(st.floats(), max_size=6),
)
FACTORS = st.sampled_from([0.0, -1.0, 1e3, 1e10, 1e38, math.inf, math.nan])


def honest(message, context):
    """A client without data that answers every task as it should."""
    client, kind = context.node_config[keys.PARTITION_ID], message.metadata.message_type
    if kind == keys.HELLO:
        return messages.hello_reply(message, messages.Hello(client, True, PROTOCOL))
    if kind == keys.DESCRIBE:
        classes = ("a", "b", "c")
        schema = messages.Schema(classes, 6, CLIENTS, NODES, "0" * 64, 100, "cpu", "0" * 64)
        return messages.schema_reply(message, schema)
    if kind == keys.EVALUATE:
        own = Counts({"deployed": 4}, 6, [2, 1, 1], [2, 2, 2], [3, 2, 1])
        final = messages.config_of(message).get(keys.FINAL)
        counts = {"val": own}
        if final:
            losses, gaps = [6000] * len(TEMPERATURES), [6000] * len(TEMPERATURES) * BINS
            counts["val"] = replace(own, calibration=losses)
            counts["test"] = replace(own, calibration=gaps)
        return messages.evaluate_reply(message, counts, Tokens() if final else None)
    state = {name: tensor + 0.01 for name, tensor in messages.model_of(message).items()}
    return messages.train_reply(message, state, NODES, Report(loss=0.5))


@st.composite
def alterations(draw):
    """A function that alters a reply, drawn from everything that a message can hold."""
    how = draw(st.sampled_from(["entry", "entry", "record", "array", "tensor", "error", "about"]))
    pick, name = draw(st.integers(0, 50)), draw(st.sampled_from(["", "surprise", "x" * 5000]))
    value, factor, empty = draw(VALUES), draw(FACTORS), draw(st.booleans())

    def alter(reply):
        content = dict(reply.content)
        if how == "error":
            return Message(Error(pick * 100, str(value)[:10] * 10**5), metadata=reply.metadata)
        if how == "about":
            field = ["_message_type", "_src_node_id"][pick % 2]
            reply.metadata.__dict__[field] = [f"train.{name[:50]}", pick + 77][pick % 2]
            return reply
        record = list(content)[pick % len(content)]
        if how == "record":
            content.pop(record) if empty else None
            content |= {name: ConfigRecord({"a": "b"})} if name else {}
        elif isinstance(content[record], ArrayRecord):
            content[record] = altered_arrays(content[record])
        else:
            content[record] = altered_entries(content[record])
        return messages.with_content(reply, RecordDict(content))

    def altered_entries(record):
        entries = dict(record)
        entry = name or list(entries)[pick % len(entries)]
        entries[entry] = value
        if empty:
            entries.pop(entry)
        try:
            return type(record)(entries)
        except (TypeError, ValueError):  # of no type that this record may hold; another one may
            return ConfigRecord({entry: value})

    def altered_arrays(record):
        arrays = dict(record)
        entry = list(arrays)[pick % len(arrays)]
        if how == "tensor":
            tensor = messages.state_of(record)[entry] * factor
            changed = [tensor, tensor.double(), tensor.flatten()[:-1], tensor[None]][pick % 4]
            return ArrayRecord(arrays | dict(arrays_of({entry: changed})))
        old = arrays.pop(entry)
        facts = {"dtype": old.dtype, "shape": old.shape, "stype": old.stype, "data": old.data}
        lies = {
            "dtype": ["float64", "object", "<U9", name],
            "shape": [(), (-1,), (2**62, 2), (pick,), old.shape[::-1], (1,) * 40],
            "stype": ["pickle", ""],
            "data": [b"", old.data[:-1], old.data + b"x", b"\x80\x04K\x01.", b"\x93NUMPY\x01"],
        }
        field = ["dtype", "shape", "stype", "data"][pick % 4]
        lie = lies[field][pick % len(lies[field])]
        return ArrayRecord(arrays | {name or entry: Array(**facts | {field: lie})})

    return alter


@pytest.fixture(scope="module")
def federation(run_config, tmp_path_factory):
    """A function that runs a federation with a liar; returns the result."""
    flower = logging.getLogger("flwr")
    before = flower.level
    flower.setLevel(logging.CRITICAL)
    place = tmp_path_factory.mktemp("fuzz")
    options = {"method": "fedavg-full", "clients": CLIENTS, "rounds": 1, "hidden_dim": 4}
    config = run_config(
        **options, min_valid_replies=4, out=str(place), node_timeout=0.1, overwrite=True
    )

    def start(kind, alter):
        def app(message, context):
            reply = honest(message, context)
            lies = context.node_config[keys.PARTITION_ID] == LIAR
            return alter(reply) if lies and message.metadata.message_type == kind else reply

        grid = InProcessGrid(app, flatten(config), CLIENTS)
        server_app.run(grid, config, "fuzz", place)
        return json.loads((place / "result.json").read_text("utf-8"), parse_constant=pytest.fail)

    yield start
    flower.setLevel(before)


@pytest.mark.long
@settings(max_examples=examples(250), derandomize=True, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(KINDS), alter=alterations())
def test_no_altered_reply_ends_a_run_or_falsifies_it(federation, kind, alter):
    result = federation(kind, alter)
    (row,) = result["history"]
    assert row["loss"] is not None and abs(row["loss"]) <= 2**53
    assert row["val_accuracy"] is None or 0 <= row["val_accuracy"] <= 1
    for score in (result["test_accuracy"], result["test_macro_f1"]):
        assert 0 <= score <= 1 if result["test_nodes"] else score is None
    assert result["test_nodes"] <= CLIENTS * NODES
    assert len(json.dumps(result)) < 50_000


@pytest.fixture(scope="module")
def asked(run_config):
    """A function that sends one request to a liar; returns its reply as the server keeps it."""
    config = run_config(method="fedavg-full", clients=CLIENTS)
    side = get_spec(config.method).server_type()(config, ModelShape(6, 4, 3))
    checks, log = ReplyChecks(config), MessageLog()
    checks.learn(
        {1: messages.Schema(("a", "b", "c"), 6, CLIENTS, NODES, "0" * 64, 100, "cpu", "0" * 64)}
    )
    common = messages.run_config("fuzz", "")
    requests = {
        keys.DESCRIBE: messages.query(keys.DESCRIBE, 1, {keys.PARTITION_DIR: ""}),
        keys.TRAIN: Message(
            RecordDict({keys.ARRAYS: arrays_of(START), keys.CONFIG: ConfigRecord(common)}),
            dst_node_id=1,
            message_type=keys.TRAIN,
        ),
        keys.EVALUATE: messages.evaluate(1, common, arrays_of(START)),
    }

    def send(kind, alter):
        grid = InProcessGrid(lambda *message: alter(honest(*message)), {}, 1)
        (reply,) = ask(grid, [requests[kind]], 1.0, log, checks.fault)
        return reply, side

    yield send
    assert sum(len(names) for row in log.rows() for names in row["keys"].values()) < 60


@settings(max_examples=examples(750), derandomize=True, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(KINDS), alter=alterations())
def test_what_the_checks_let_pass_can_be_read(asked, kind, alter):
    reply, side = asked(kind, alter)
    assert reply.metadata.src_node_id == 1 and reply.metadata.message_type == kind
    if reply.has_error():
        assert 0 < len(reply.error.reason) < 1100  # one that names what is wrong
        return
    if kind == keys.DESCRIBE:
        schema = read_schema(reply)
        assert 0 <= schema.num_nodes < 2**31 and all(type(n) is str for n in schema.class_names)
    elif kind == keys.TRAIN:
        upload, fault = read_upload(reply, 0, side, START)
        assert 0 < upload.weight <= NODES and (fault or upload.state.keys() == START.keys())
        training = read_training(sum_metrics([messages.metrics_of(reply.content)] * 2))
        assert math.isfinite(training.loss) and min(training.counts.values()) >= 0
    else:
        counts = read_counts(messages.metrics_of(reply.content), "val", ["deployed"])
        assert 0 <= counts.correct["deployed"] <= counts.total <= NODES
        scores = (
            accuracy(counts.correct["deployed"], counts.total),
            macro_f1(counts.true_positives, counts.predicted, counts.actual),
        )
        assert all(0 <= score <= 1 if counts.total else score is None for score in scores)


@settings(max_examples=examples(30), derandomize=True, suppress_health_check=list(HealthCheck))
@given(alter=alterations())
def test_an_altered_greeting_is_one_line_or_nothing(federation, alter):
    try:
        federation(keys.HELLO, alter)
    except UserError as error:  # no run starts without all of its clients
        assert len(str(error)) < 2000


def test_the_honest_answers_are_read(federation):
    result = federation(keys.TRAIN, lambda reply: reply)
    assert result["test_nodes"] == 6 * CLIENTS and not result["history"][0]["absent"]
    assert result["nodes_per_client"] == [NODES] * CLIENTS
    assert math.isfinite(result["history"][0]["loss"])
