"""A thousand altered messages of a server to a client that answers under masks only.

Each is one of an honest run with records, keys, values, types or stages changed, sent to a copy of
the client in the state in which it was at some point of that run.
"""

from copy import deepcopy
from dataclasses import fields

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.quick import examples
from support.sums import nodes_with_keys

import client_app
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import Hello, Schema

KEYS = {"privacy_secure_aggregation": True, "clients": 3, "rounds": 1, "local_epochs": 1}
REFUSAL = "this client does not take part; the reason is in its own log"
TYPES = [
    *(keys.TRAIN, keys.EVALUATE, keys.HELLO, keys.DESCRIBE, keys.EXCHANGE, keys.SEAL),
    *("query.other", "train.other", "evaluate.other"),
]
STAGES = [*Stage.all(), keys.SURVIVORS]

whole = st.sampled_from([-1, 0, 1, 2, 3, 4, 7, 2**31, 2**62])
words = st.sampled_from(["", "x", "1", "train", "evaluate", keys.WEIGH, keys.EXCHANGE, *STAGES])
scalars = st.one_of(
    whole,
    words,
    st.booleans(),
    st.binary(max_size=4),
    st.sampled_from([0.0, -1.0, 1e-9, 1e300, float("inf"), float("nan")]),
)
values = st.one_of(scalars, st.lists(whole, max_size=4), st.lists(st.binary(max_size=4)))
MOMENTS = 3 + 5 * 4  # HELLO, DESCRIBE, SEAL; five stages for weights, training, validation, test
places = st.integers(0, MOMENTS - 1)
# What an alteration does, and a number that chooses the place.
alterations = st.lists(
    st.tuples(
        st.sampled_from(["type", "stage", "drop record", "drop key", "key", "value", "value"]),
        st.integers(0, 10**6),
        values,
    ),
    min_size=1,
    max_size=3,
)


def altered(message, changes):
    """A copy of the message with these changes."""
    kind = message.metadata.message_type
    records = {
        name: ConfigRecord(dict(record)) if isinstance(record, ConfigRecord) else record
        for name, record in message.content.items()
    }
    for change, number, value in changes:
        configs = [record for record in records.values() if isinstance(record, ConfigRecord)]
        places = [(record, key) for record in configs for key in record]
        record, key = places[number % len(places)] if places else (ConfigRecord(), "x")
        if change == "type":
            kind = TYPES[number % len(TYPES)]
        elif change == "stage":
            records.setdefault(SECAGG_CONFIGS, ConfigRecord())
            records[SECAGG_CONFIGS][Key.STAGE] = STAGES[number % len(STAGES)]
        elif change == "drop record" and records:
            records.pop(list(records)[number % len(records)])
        elif change == "drop key":
            record.pop(key, None)
        elif change == "key":
            record[str(value)[:9].replace("/", "")] = deepcopy(value)
        elif change == "value" and not (key == keys.RUN and "/" in str(value)):
            record[key] = deepcopy(value)
    return Message(RecordDict(records), message.metadata.dst_node_id, kind)


@pytest.fixture(scope="module")
def moments(run, tmp_path_factory):
    """(message, context) of one client through an honest run in which nodes have keys."""
    found = []

    def app(message, context):
        if context.node_config["partition-id"] == 0:
            found.append((altered(message, []), deepcopy(context)))
        return client_app.app(message, context)

    run(app=app, node_configs=nodes_with_keys(tmp_path_factory.mktemp("keys"), 3), **KEYS)
    assert len(found) == MOMENTS
    return found


def answer(moment, state, changes=(), by_node=False):
    """The client's answer to an altered message of one moment in the state of another."""
    message, context = altered(moment[0], changes), deepcopy(state[1])
    if by_node:
        context.run_config["privacy.secure-aggregation"] = False
        context.node_config[keys.DEMANDS_MASKS] = True
    return message, client_app.app(message, context)


@pytest.mark.parametrize("by_node", [False, True], ids=["the run asks", "the node asks"])
def test_messages_that_are_not_altered_are_answered(moments, by_node):
    for moment in moments:
        message, reply = answer(moment, moment, by_node=by_node)
        assert not reply.has_error()
        check_legal(message.metadata.message_type, reply.content)


@pytest.mark.parametrize("by_node", [False, True], ids=["the run asks", "the node asks"])
@settings(max_examples=examples(500), database=None, suppress_health_check=list(HealthCheck))
@given(asked=places, state=places, changes=alterations)
def test_altered_messages_are_refused_in_one_sentence_or_answered_as_the_protocol_says(
    moments, by_node, asked, state, changes
):
    own = len(changes) < 3  # mostly in the state in which the client expects such a message
    message, reply = answer(moments[asked], moments[asked if own else state], changes, by_node)
    if reply.has_error():
        assert (reply.error.code, reply.error.reason) == (keys.USER_ERROR, REFUSAL)
    else:
        check_legal(message.metadata.message_type, reply.content)


NAMES = {keys.HELLO: Hello, keys.DESCRIBE: Schema}
SIGNATURE = {keys.CLIENT, keys.SIGNATURE}
ANSWERS = [
    {Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2},
    {Key.DESTINATION_LIST, Key.CIPHERTEXT_LIST},
    {Key.MASKED_PARAMETERS},
    {Key.NODE_ID_LIST, Key.SHARE_LIST},
]


def check_legal(kind, content):
    """Nothing but greetings, schemas without counts, and what the stages of SecAgg+ answer."""
    config, sums = content.config_records, content.config_records.get(SECAGG_CONFIGS)
    assert not any(content.array_records.values())
    assert set(config.get(keys.SIGNED, {})) <= SIGNATURE
    if kind in NAMES:
        assert set(content) <= {keys.CONFIG, keys.SIGNED}
        assert set(config[keys.CONFIG]) == {field.name for field in fields(NAMES[kind])}
        counts = [config[keys.CONFIG].get(key, 0) for key in ("num_nodes", "encoder_tokens")]
        assert counts == [0, 0]
        return
    if kind == keys.SEAL:
        assert set(content) == {keys.CONFIG} and set(config[keys.CONFIG]) == {keys.EVIDENCE_SHA256}
        return
    assert kind == keys.TRAIN
    if sums is None:
        assert set(content) == {keys.SIGNED}  # of the survivors
        return
    assert set(sums) in ANSWERS
    if Key.MASKED_PARAMETERS in sums:
        layout = config[keys.SECURE_LAYOUT]
        assert set(layout) == {keys.NAMES, keys.LENGTHS, keys.MICRO, keys.OMITTED}
        assert dict(content.metric_records["fitres.num_examples"]) == {"num_examples": 1}
    else:
        assert set(content) <= {SECAGG_CONFIGS, keys.SIGNED}
