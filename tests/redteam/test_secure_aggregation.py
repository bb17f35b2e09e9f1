"""A server that lies in SecAgg+: at each stage of an honest sum it also asks what must be refused.

The lies go to copies of a client and its state, so that the honest run goes on.
"""

from copy import deepcopy

import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

import client_app
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.wire import keys

SECURE = {"privacy_secure_aggregation": True, "clients": 5, "rounds": 1}
CLIENTS, THRESHOLD = 5, 3


def altered(message, message_type=MessageType.TRAIN, **values):
    """The message with other values of its stage; None takes a value away."""
    stage = dict(message.content.config_records[SECAGG_CONFIGS]) | values
    stage = {name: value for name, value in stage.items() if value is not None}
    records = dict(message.content) | {SECAGG_CONFIGS: ConfigRecord(stage)}
    return typed(message, message_type, records)


def typed(message, message_type, records):
    """These records as a message of a type to the same node."""
    return Message(RecordDict(records), message.metadata.dst_node_id, message_type)


def setup_lies(message):
    return {
        "a sum of one": altered(message, **{Key.SHARE_NUMBER: 1, Key.THRESHOLD: 1}),
        "a sum of two": altered(message, **{Key.SHARE_NUMBER: 2, Key.THRESHOLD: 2}),
        "half of the shares": altered(message, **{Key.SHARE_NUMBER: 4, Key.THRESHOLD: 2}),
        "more than all shares": altered(message, **{Key.THRESHOLD: CLIENTS + 1}),
    }


def share_lies(message):
    nodes = [key for key in message.content.config_records[SECAGG_CONFIGS] if key != Key.STAGE]
    own = str(message.metadata.dst_node_id)
    others = [node for node in nodes if node != own]
    return {"keys of two": altered(message, **dict.fromkeys(others[1:]))}


def collect_lies(message):
    stage = message.content.config_records[SECAGG_CONFIGS]
    sources, shares = stage[Key.SOURCE_LIST], stage[Key.CIPHERTEXT_LIST]
    again = {Key.SOURCE_LIST: sources[:1] * 4, Key.CIPHERTEXT_LIST: shares[:1] * 4}
    bare = {name: record for name, record in message.content.items() if name != SECAGG_CONFIGS}
    return {
        "one source four times": altered(message, **again),
        "no stage": typed(message, MessageType.TRAIN, bare),
        "no stage, to validate": typed(message, MessageType.EVALUATE, bare),
        "another type of message": altered(message, MessageType.EVALUATE),
        "an exchange": typed(message, keys.EXCHANGE, bare),
    }


def unmask_lies(message):
    stage = message.content.config_records[SECAGG_CONFIGS]
    everyone = sorted({*stage[Key.ACTIVE_NODE_ID_LIST], *stage[Key.DEAD_NODE_ID_LIST]})

    def asked(alive, dead):
        return altered(message, **{Key.ACTIVE_NODE_ID_LIST: alive, Key.DEAD_NODE_ID_LIST: dead})

    first = everyone[0]
    return {
        "one client three times": asked([first] * THRESHOLD, everyone[1:]),
        "one client twice": asked([first, first, everyone[1]], everyone[2:]),
        "a client alive and dead": asked(everyone, everyone[:1]),
        "too few alive": asked(everyone[:2], everyone[2:]),
        "a client left out": asked(everyone[1:], []),
        "a stranger": asked([*everyone[1:], max(everyone) + 1], everyone[:1]),
    }


LIES = {
    Stage.SETUP: setup_lies,
    Stage.SHARE_KEYS: share_lies,
    Stage.COLLECT_MASKED_VECTORS: collect_lies,
    Stage.UNMASK: unmask_lies,
}


@pytest.fixture(scope="module", params=[False, True], ids=["the run asks", "the node asks"])
def answers(request, run):
    """Lie -> whether each client refused it, over all sums of a run.

    Masks are demanded by the configuration of the run, or by the operator of the node although the
    server's configuration says no.
    """
    refused = {}

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        for name, lie in (LIES[stage[Key.STAGE]](message) if stage else {}).items():
            victim = deepcopy(context)
            if request.param:
                victim.run_config["privacy.secure-aggregation"] = False
                victim.node_config[keys.DEMANDS_MASKS] = True
            refused.setdefault(name, []).append(_refuses(lie, victim))
        return client_app.app(message, context)

    run(app=app, **SECURE)
    return refused


def _refuses(message, context):
    try:
        return client_app.app(message, context).has_error()
    except (KeyError, TypeError, ValueError):  # the SuperNode answers with an error
        return True


def test_every_lie_is_refused_by_every_client(answers):
    assert len(answers) == 16 and all(len(found) >= CLIENTS for found in answers.values())
    assert {name for name, found in answers.items() if not all(found)} == set()
