"""A server that lies in SecAgg+: at each stage of an honest sum it also asks what must be refused.

The lies go to copies of a client and its state, so that the honest run goes on.
"""

import logging
from copy import deepcopy

import pytest
from flwr.app import ConfigRecord, MessageType
from support.sums import altered, typed

import client_app
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of

SECURE = {"method": "fedavg-full", "clients": 5, "rounds": 1, "privacy_secure_aggregation": True}
CLIENTS, THRESHOLD = 5, 3


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
    pair = message.content.config_records[SECAGG_CONFIGS][others[0]]
    names = dict.fromkeys(others) | {f"{zeros}{others[0]}": pair for zeros in ("", "0", "00")}
    return {
        "keys of two": altered(message, **dict.fromkeys(others[1:])),
        "keys of two, one under three names": altered(message, **names),
    }


def trains(message):
    """Whether a sum is that of models, in which a client's share of all nodes counts."""
    return message.content.config_records[keys.SECURE_SUM][keys.TASK] == keys.TRAIN


def collect_lies(message):
    stage = message.content.config_records[SECAGG_CONFIGS]
    sources, shares = stage[Key.SOURCE_LIST], stage[Key.CIPHERTEXT_LIST]
    again = {Key.SOURCE_LIST: sources[:1] * 4, Key.CIPHERTEXT_LIST: shares[:1] * 4}
    options = message.content.config_records[keys.SECURE_SUM]

    def asked(**values):
        other = altered(message)  # a copy: Flower takes the stage out of what it reads
        other.content[keys.SECURE_SUM] = ConfigRecord(dict(options) | values)
        return other

    bare = {name: record for name, record in message.content.items() if name != SECAGG_CONFIGS}
    return {
        "one source four times": altered(message, **again),
        "no stage": typed(message, MessageType.TRAIN, bare),
        "no stage, to validate": typed(message, MessageType.EVALUATE, bare),
        "another type of message": altered(message, MessageType.EVALUATE),
        "an exchange": typed(message, keys.EXCHANGE, bare),
        **({"no node in all": asked(**{keys.TOTAL_WEIGHT: 1})} if trains(message) else {}),
        "a task of another kind": asked(**{keys.TASK: keys.EXCHANGE}),
        "integers of a million bits": asked(**{keys.BITS: 10**6}),
        "digits of no bit": asked(**{keys.DIGIT_BITS: 0}),
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


class Log(logging.Handler):
    """Keeps what a client logs."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module", params=[False, True], ids=["the run asks", "the node asks"])
def answers(request, run):
    """Lie -> each client's answer and what it logged, over all sums of a run.

    Masks are demanded by the configuration of the run, or by the operator of the node although the
    server's configuration says no.
    """
    found = {}

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        for name, lie in (LIES[stage[Key.STAGE]](message) if stage else {}).items():
            victim = deepcopy(context)
            if request.param:
                victim.run_config["privacy.secure-aggregation"] = False
                victim.node_config[keys.DEMANDS_MASKS] = True
            found.setdefault(name, []).append(asked(lie, victim))
        return client_app.app(message, context)

    run(app=app, **SECURE)
    return found


def asked(message, context):
    """A client's answer to a message and its log; the text of an exception for one that raises."""
    logger, log = logging.getLogger("dance_flwr.events"), Log()
    logger.addHandler(log)
    try:
        reply = client_app.app(message, context)
        return (reply.error.reason if reply.has_error() else None), log.lines
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # what the server gets
        return f"{type(error).__name__}: {error}", log.lines
    finally:
        logger.removeHandler(log)


def test_every_lie_is_refused_by_every_client(answers):
    assert len(answers) == 21 and all(len(found) >= CLIENTS for found in answers.values())
    assert {name for name, found in answers.items() if None in dict(found)} == set()


def test_every_refusal_is_the_same_sentence_and_the_log_says_why(answers):
    reasons = {reason for found in answers.values() for reason, _ in found}
    assert reasons == {"this client does not take part; the reason is in its own log"}
    logged = {name: found[-1][1] for name, found in answers.items()}
    assert [name for name, lines in logged.items() if not any(lines)] == []
    assert any("expected at least this client's" in line for line in logged["no node in all"])


def test_a_refusal_ends_the_sum_so_that_a_server_cannot_search(run):
    """A server that asks for the same sum with other totals would find a client's weight."""
    seen = []

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        collects = stage and stage[Key.STAGE] == Stage.COLLECT_MASKED_VECTORS
        if collects and trains(message) and len(seen) < 2:
            victim = deepcopy(context)
            lie = collect_lies(message)["no node in all"]
            seen.extend(asked(each, victim)[0] for each in (lie, altered(message)))
        return client_app.app(message, context)

    run(app=app, **SECURE)
    assert len(seen) == 2 and None not in seen


@pytest.mark.parametrize("name", [keys.TOTAL_WEIGHT, keys.UPDATE_RANGE])
def test_a_server_has_one_guess_per_run(run, name):
    """Refused or not is one bit: with another total in each round it would find a weight."""
    seen = []

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        collects = stage and stage[Key.STAGE] == Stage.COLLECT_MASKED_VECTORS
        if collects and trains(message):
            options = dict(message.content.config_records[keys.SECURE_SUM])
            lie = altered(message)
            lie.content[keys.SECURE_SUM] = ConfigRecord(options | {name: options[name] * 2})
            seen.append([asked(each, deepcopy(context))[0] for each in (altered(message), lie)])
        return client_app.app(message, context)

    run(app=app, **SECURE | {"rounds": 2})
    refused = [(honest is not None, lie is not None) for honest, lie in seen]
    assert refused[:CLIENTS] == [(False, False)] * CLIENTS
    assert refused[CLIENTS:] == [(False, True)] * CLIENTS


@pytest.mark.parametrize("poison", [float("-inf"), float("nan")])
def test_a_model_that_breaks_an_answer_is_asked_once(run, poison):
    """The first and third round bring it to a copy of every client, which the second one asks."""
    kept, seen = {}, {}

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        if not stage or stage[Key.STAGE] != Stage.COLLECT_MASKED_VECTORS or not trains(message):
            return client_app.app(message, context)
        client, name = context.node_config["partition-id"], "dance-flwr-refused"
        victim, lie = deepcopy(context), altered(message)
        if client in kept:
            victim.state.config_records[name] = kept[client]
        if len(seen.setdefault(client, [])) % 2 == 0:
            state = messages.model_of(message)
            state["head_graph.bias"][:] = poison
            lie = messages.with_arrays(lie, arrays_of(state))
        seen[client].append(asked(lie, victim)[0] is not None)
        if name in victim.state.config_records:
            kept[client] = victim.state.config_records[name]
        return client_app.app(message, context)

    run(app=app, **SECURE | {"rounds": 3})
    assert seen and all(found == [True] * 3 for found in seen.values())


@pytest.mark.parametrize(("least", "refused"), [(3, False), (4, True)])
def test_a_node_has_a_floor_of_its_own(run, least, refused):
    """A server that wants sums of three of five asks for a threshold of three."""
    answers = []

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS)
        if stage and stage[Key.STAGE] == Stage.SETUP:
            victim = deepcopy(context)
            victim.node_config["min-clients"] = least
            answers.append(asked(altered(message), victim)[0] is not None)
        return client_app.app(message, context)

    run(app=app, **SECURE)
    assert answers and set(answers) == {refused}
