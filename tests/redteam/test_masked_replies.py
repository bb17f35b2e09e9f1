"""One client of five sends nonsense in a stage of a masked sum: it is named, and out of the sum."""

import json
from collections import Counter

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import altered
from support.altered import crash, records
from support.quick import examples

import client_app
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.declarations import disclosure
from dance_flwr.federation.flower import SECAGG_CONFIGS, ndarray_to_bytes
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.runs.privacy_report import table
from tests.support.sums import Lying, counting_app, nodes_with_keys, stage_of, weight

LIAR, CLIENTS = 3, 5
SETTINGS = {
    **{"method": "fedavg-full", "clients": CLIENTS, "rounds": 1},
    "privacy_secure_aggregation": True,
}


def entries(record=SECAGG_CONFIGS, kind=ConfigRecord, **changes):
    return altered.entries(record, kind, **changes)


def both(*alterations):
    def change(reply):
        for alter in alterations:
            reply = alter(reply)
        return reply

    return change


def of_another_curve():
    return public_key_to_bytes(ec.generate_private_key(ec.SECP256R1()).public_key())


def same_key_twice(reply):
    own = reply.content[SECAGG_CONFIGS][Key.PUBLIC_KEY_1]
    return entries(pk2=own)(reply)


def first(change):
    """An alteration of the first entry of a list."""
    return lambda values: [change(values[0]), *values[1:]]


ANY = {
    "nothing": lambda reply: messages.with_content(reply, RecordDict()),
    "an exception of a megabyte": crash,
    "one more entry": entries(surprise=1),
    "one more record": records(more=ConfigRecord({"a": "b"})),
    "metrics in the place of a config": records(**{SECAGG_CONFIGS: MetricRecord({"a": 1})}),
    "signatures that nobody asked for": records(signed=ConfigRecord({"surprise": 1})),
}
STAGES = {
    Stage.SETUP: {
        "no key": entries(pk1=None),
        "text": entries(pk1="x"),
        "bytes that are no key": entries(pk2=b"-----BEGIN PUBLIC KEY-----\nAAAA"),
        "a megabyte of key": entries(pk1=lambda key: key + b"\n" * 10**6),
        "a key of another curve": entries(pk1=of_another_curve()),
        "a key that stands twice": same_key_twice,
    },
    Stage.SHARE_KEYS: {
        "no shares": entries(ctxts=None),
        "fewer shares than clients": both(entries(dsts=lambda v: v[1:], ctxts=lambda v: v[1:])),
        "more clients than shares": entries(ctxts=lambda v: v[1:]),
        "one client twice": entries(dsts=lambda v: [v[0], *v[:-1]]),
        "a client that there is not": entries(dsts=first(lambda node: node + 77)),
        "shares for itself": entries(dsts=first(lambda node: LIAR + 1)),
        "shares in words": entries(ctxts=lambda v: ["x"] * len(v)),
        "a megabyte of shares": entries(ctxts=first(lambda share: share * 10**4)),
    },
    Stage.COLLECT_MASKED_VECTORS: {
        "no vector": entries(masked_params=None),
        "one vector less": entries(masked_params=lambda v: v[:1]),
        "one vector more": entries(masked_params=lambda v: [*v, v[0]]),
        "text": entries(masked_params=["x", "y"]),
        "a pickle": entries(masked_params=lambda v: [v[0], b"\x80\x04K\x01."]),
        "a byte less": entries(masked_params=lambda v: [v[0], v[1][:-1]]),
        "a longer vector": entries(
            masked_params=lambda v: [v[0], ndarray_to_bytes(torch.ones(10**5).int().numpy())]
        ),
        "no layout": records(layout=None),
        "another name": entries(keys.SECURE_LAYOUT, names=first(lambda name: "surprise")),
        "names without lengths": entries(keys.SECURE_LAYOUT, names=lambda v: [*v, "more"]),
        "a million lengths": entries(keys.SECURE_LAYOUT, lengths=[1] * 10**6),
        "a length of 1e12": entries(keys.SECURE_LAYOUT, lengths=first(lambda length: 10**12)),
        "one more word of layout": entries(keys.SECURE_LAYOUT, surprise=1),
        "a layout that says nothing": entries(keys.SECURE_LAYOUT, omitted="perhaps"),
        "a model in the open": records(**{"fitres.parameters": arrays_of({"a": torch.ones(2)})}),
        "a weight of its own": entries("fitres.num_examples", MetricRecord, num_examples=7),
        "a metric in the open": entries("fitres.metrics", surprise=1.0),
        "a status of a megabyte": entries("fitres.status", message="x" * 10**6),
    },
    Stage.UNMASK: {
        "no shares": entries(shares=None),
        "fewer shares than clients": entries(nids=lambda v: v[1:], shares=lambda v: v[1:]),
        "more clients than shares": entries(shares=lambda v: v[1:]),
        "a client that there is not": entries(nids=first(lambda node: node + 77)),
        "one client twice": entries(nids=lambda v: [v[0], *v[:-1]]),
        "no share": entries(shares=first(lambda share: b"")),
        "half a share": entries(shares=first(lambda share: share[:-8])),
        "a block more": entries(shares=first(lambda share: share + b"x" * 16)),
        "a share without a number": entries(shares=first(lambda share: bytes(4) + share[4:])),
    },
}
LIES = {stage: {**ANY, **lies} for stage, lies in STAGES.items()}


def asked_stage(message):
    found = message.has_content() and SECAGG_CONFIGS in message.content.config_records
    return stage_of(message) if found else None


def liar(stage, *changes, liars=(LIAR,)):
    """The ClientApp, with clients whose replies to a stage are altered, in another way per sum.

    Sums count from 0: the weights, then the training of every round.
    """
    sums = Counter()

    def app(message, context):
        client, asked = context.node_config[keys.PARTITION_ID], asked_stage(message)
        sums[client] += asked == Stage.SETUP
        reply = client_app.app(message, context)
        lies = asked == stage and client in liars and 1 <= sums[client] - 1 <= len(changes)
        return changes[sums[client] - 2](reply) if lies else reply

    return app


def counting_liar(stage, change):
    """As `liar`, of the clients that sum without data, in every sum."""
    honest = counting_app()

    def app(message, context):
        asked = stage_of(message)  # before the client takes it out
        reply = honest(message, context)
        lies = asked == stage and context.node_config[keys.PARTITION_ID] == LIAR
        return change(reply) if lies else reply

    return app


@pytest.mark.parametrize("stage", LIES)
def test_nonsense_in_a_stage_is_refused_by_name_and_the_sum_goes_on(run, stage):
    """A lie per round, and no validation but that of the last one."""
    lies = LIES[stage]
    rounds = {"rounds": len(lies), "evaluate_every": len(lies)}
    finished = run(app=liar(stage, *lies.values()), **SETTINGS | rounds)
    text = (finished.folder / "result.json").read_text("utf-8")
    for name, row in zip(lies, json.loads(text)["history"], strict=True):
        assert row["absent"].keys() == {str(LIAR)}, name
        assert 0 < len(row["absent"][str(LIAR)]) < 1100, name
    assert "surprise" not in str(finished.result["messages"]) and len(text) < 60_000
    assert table(finished.result["messages"])
    assert 0 < finished.result["test_accuracy"] <= 1


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_the_run_ends_and_names_who_sent_nonsense(run, stage):
    with pytest.raises(QuorumError, match=r"found 2; client 1: .*; client 3: .*; client 4: "):
        run(app=liar(stage, entries(surprise=1), liars=(1, 3, 4)), **SETTINGS)


FALSE = {
    "shares for others": (Stage.SHARE_KEYS, entries(ctxts=lambda v: [s[::-1] for s in v])),
    "shares of secrets": (Stage.UNMASK, entries(shares=first(lambda s: s[:4] + s[:3:-1]))),
    "one number twice": (Stage.UNMASK, entries(shares=lambda v: [b"\1\0\0\0" + s[4:] for s in v])),
}


@pytest.mark.parametrize("lie", FALSE)
def test_false_shares_of_the_right_form_end_the_run_with_a_line(run, lie):
    """Nobody sees whose they are: they fit no others."""
    with pytest.raises(QuorumError, match="secure aggregation, stage") as end:
        run(app=liar(*FALSE[lie]), **SETTINGS)
    assert len(str(end.value)) < 2000


def test_clients_that_share_a_key_are_refused(run):
    """Flower's clients refuse a sum in which a key stands twice: all of them would."""
    pair = {}

    def same(reply):
        pair.update(pair or dict(reply.content[SECAGG_CONFIGS]))
        return entries(**pair)(reply)

    finished = run(app=liar(Stage.SETUP, same, liars=(1, 3)), **SETTINGS)
    assert finished.result["history"][0]["absent"].keys() == {"1", "3"}


@pytest.mark.parametrize(
    "change", [ANY["one more record"], ANY["signatures that nobody asked for"]]
)
@pytest.mark.parametrize("stage", [Stage.SETUP, keys.SURVIVORS])
def test_nonsense_beside_a_signature_is_refused(tmp_path, stage, change):
    """A client that signs no survivors is not asked to unmask: three others are enough."""
    grid = Lying(nodes_with_keys(tmp_path), app=counting_liar(stage, change))
    if stage == Stage.SETUP:  # out of the sum: its numbers are missing
        with pytest.raises(QuorumError, match="expected the numbers of all 5 clients"):
            grid.total()
    else:
        assert grid.total() == sum(map(weight, range(CLIENTS)))
    assert "expected" in grid.server.absent[LIAR]
    for row in grid.server.log.rows():
        assert all(
            disclosure(record, key) for record, found in row["keys"].items() for key in found
        )


VALUES = st.one_of(
    st.sampled_from([-1, 0, 2**62, 0.5, float("nan"), True, "", "x" * 5000, b"", b"\x80\x04", []]),
    st.lists(st.integers(-5, 9), max_size=6),
    st.lists(st.binary(max_size=80), max_size=6),
    st.lists(st.sampled_from(["a", "b" * 300]), max_size=3),
)


@st.composite
def alterations(draw):
    """A function that alters one record of a reply."""
    pick, value, drop = draw(st.integers(0, 50)), draw(VALUES), draw(st.booleans())
    name = draw(st.sampled_from(["", "", "surprise", "x" * 5000, "1"]))

    def alter(reply):
        content = dict(reply.content)
        record = list(content)[pick % len(content)]
        found = dict(content.pop(record))
        if found and drop:
            found.pop(list(found)[pick % len(found)])
        found[name or (list(found) or ["a"])[pick % max(len(found), 1)]] = value
        content[record] = ConfigRecord(
            {key: entry for key, entry in found.items() if not hasattr(entry, "stype")}
        )
        return messages.with_content(reply, RecordDict(content))

    return alter


@pytest.mark.long
@settings(max_examples=examples(150), derandomize=True, suppress_health_check=list(HealthCheck))
@given(stage=st.sampled_from(list(STAGES)), alter=alterations())
def test_no_altered_reply_of_a_stage_is_more_than_one_line(stage, alter):
    """The sum of all is right, or the run ends with a line; no key of a stranger is recorded."""
    nodes = {k + 1: {keys.PARTITION_ID: k, "num-partitions": CLIENTS} for k in range(CLIENTS)}
    grid = Lying(nodes, app=counting_liar(stage, alter))
    try:
        assert grid.total() == sum(map(weight, range(CLIENTS)))
    except UserError as error:
        assert len(str(error)) < 2000
    for row in grid.server.log.rows():
        assert all(
            disclosure(record, key) for record, found in row["keys"].items() for key in found
        )
