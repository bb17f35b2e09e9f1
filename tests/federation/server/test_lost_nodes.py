"""Nodes that Flower gives up in the middle of a round are asked again once they are back."""

import time
from threading import Event

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.superlink.grid import HttpGrid
from google.protobuf.message import DecodeError
from support.graphs import EVERY_ROUND

from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.server import polling as asking
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.wire.keys import INVALID_REPLY

GONE = Error(ErrorCode.NODE_UNAVAILABLE, "the node is not available")
KILLED = Error(ErrorCode.CLIENT_APP_CRASHED, "ClientApp stopped responding.")


class Lost:
    """The client app behind a network that loses one message of each client, in round 2."""

    def __init__(self, clients, kind="train", times=1, error=GONE):
        self.left = dict.fromkeys(clients, times)
        self.kind, self.error = kind, error

    def __call__(self, message, context):
        import client_app

        client, asked = (
            context.node_config["partition-id"],
            message.content.config_records.get("config", {}),
        )
        struck = message.metadata.message_type == self.kind and asked.get("server-round", 2) == 2
        if struck and self.left.get(client, 0):
            self.left[client] -= 1
            reply = Message(self.error, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = (
                SUPERLINK_NODE_ID  # it is the SuperLink that says so
            )
            return reply
        return client_app.app(message, context)


@pytest.mark.parametrize(("kind", "clients"), [("train", [1]), ("evaluate", [0, 1, 2])])
def test_a_round_waits_for_nodes_that_come_back(run, dance, kind, clients):
    lost = Lost(clients, kind, times=2)
    finished = run(app=lost, **EVERY_ROUND)
    assert not any(lost.left.values())
    assert finished.result["model_fingerprint"] == dance.result["model_fingerprint"]
    assert finished.result["test_accuracy"] == dance.result["test_accuracy"]
    assert not any(row["absent"] for row in finished.result["history"])


def test_a_client_whose_process_is_always_killed_ends_the_run(run):
    lost = Lost([1], times=10**6, error=KILLED)
    with pytest.raises(QuorumError, match="client 1: ClientApp stopped responding"):
        run(app=lost)
    assert 10**6 - lost.left[1] < 10


def test_nodes_that_only_seem_connected_are_greeted_again(run, dance):
    lost = Lost([0, 2], "query.hello", times=1)
    assert (
        run(app=lost, **EVERY_ROUND).result["model_fingerprint"]
        == dance.result["model_fingerprint"]
    )
    with pytest.raises(
        UserError, match="expected a greeting, found an error: the node is not available"
    ):
        run(app=Lost([0], "query.hello", times=10**6), node_timeout=1.0)


def test_a_round_with_a_quorum_does_not_wait(run):
    lost = Lost([1], times=2)
    assert run(app=lost, min_valid_replies=2).result["history"][1]["bytes_up"].get("1", 0) == 0
    assert lost.left[1] == 1


def test_noise_is_not_drawn_twice_for_one_round(run):
    with pytest.raises(QuorumError, match="client 1: the node is not available"):
        run(app=Lost([1]), privacy_dp="local", privacy_epsilon=500.0)


class Line(HttpGrid):
    """A network to nodes, by what becomes of the training message that each gets; clocks are a
    hundred times faster.
    """

    def __init__(self, *fates):
        self.fates, self.looks, self.left, self.sent = fates, 0, Event(), {}

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(len(self.sent))
            self.sent[str(len(self.sent))] = message, time.monotonic()
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids):
        self.looks += 1
        return [reply for key in ids if (reply := self.reply(*self.sent[key]))]

    def reply(self, message, sent_at):
        fate, asked = self.fates[message.metadata.dst_node_id], message.metadata.message_type
        answer = Message(RecordDict({"text": ConfigRecord({"to": asked})}), reply_to=message)
        if fate == "broken":
            raise ConnectionError("no route to the SuperLink")
        if fate == "unreadable":  # what Flower's classes raise for bytes that are no message
            raise DecodeError("Error parsing message")
        if fate == "superlink":
            raise ValueError("Invalid protobuf response payload") from DecodeError("truncated")
        if fate == "other":
            raise KeyError("a class that there is not")
        if fate == "busy":  # two seconds with one message, then a while with the next
            return (
                answer
                if time.monotonic() > self.sent["0"][1] + (2 if asked == "train" else 4)
                else None
            )
        if asked == "train":
            if fate == "stuck":
                self.left.wait(60)
            return answer if fate == "prompt" or self.left.is_set() else None
        if fate == "gone":
            return Message(GONE, reply_to=message)
        return None if fate == "silent" else answer


@pytest.fixture
def ask_all(monkeypatch):
    for name, seconds in {
        "SILENCE": 0.3,
        "GRACE": 0.15,
        "FASTEST_APART": 0.05,
        "SLOWEST_POLL": 0.1,
    }.items():
        monkeypatch.setattr(asking, f"_{name}_SECONDS", seconds)

    def ask(line, timeout, log=None):
        sent = [
            Message(RecordDict(), dst_node_id=node, message_type="train")
            for node in range(len(line.fates))
        ]
        replies = asking.ask(line, sent, timeout, log or MessageLog())
        return {reply.metadata.src_node_id: reply for reply in replies}

    return ask


def test_a_node_that_dies_while_it_sends_holds_up_nobody_else(ask_all, monkeypatch):
    monkeypatch.setattr(asking, "_SILENCE_SECONDS", 600.0)
    begin = time.monotonic()
    assert ask_all(Line("prompt", "stuck", "prompt"), 2.0).keys() == {0, 2}
    assert time.monotonic() - begin < 300  # it waits for two seconds, not for the silence to end


@pytest.mark.parametrize("fate", ["forgetful", "gone", "stuck"])
def test_a_node_that_answers_a_later_message_has_lost_the_earlier(ask_all, fate):
    log = MessageLog()
    replies = ask_all(Line("prompt", fate), 60.0, log)
    assert (
        not replies[0].has_error()
        and asking.is_lost(replies[1])
        and "started again" in replies[1].error.reason
    )
    counts = [(row["type"], row["count"]) for row in log.rows()]
    assert counts == [("train", 2), ("train", 2), ("query.hello", 1), ("query.hello", 1)]


def test_a_node_that_is_at_work_is_waited_for(ask_all):
    line = Line("busy", "busy")
    assert not any(reply.has_error() for reply in ask_all(line, None).values())
    assert len(line.sent) == 4  # each was greeted once


def test_a_silent_node_is_waited_for_until_the_time_is_up(ask_all):
    line = Line("prompt", "silent")
    assert ask_all(line, 1.0).keys() == {0} and len(line.sent) == 3


@pytest.mark.parametrize("fate", ["unreadable", "other"])
def test_a_reply_that_cannot_be_read_is_that_of_its_node(ask_all, fate):
    """Flower builds a message from the bytes of a client where the server pulls it."""
    log = MessageLog()
    replies = ask_all(Line("prompt", fate, "prompt"), 30.0, log)
    assert [replies[node].has_error() for node in range(3)] == [False, True, False]
    assert replies[1].error.code == INVALID_REPLY
    assert "expected a reply that can be read, found" in replies[1].error.reason
    assert [(row["count"], row["errors"]) for row in log.rows()] == [(3, 0), (3, 1)]


def test_a_response_of_the_superlink_that_cannot_be_read_is_nobodys_reply(ask_all):
    line = Line("prompt", "superlink")
    with pytest.raises(ValueError, match="Invalid protobuf response"):
        ask_all(line, 30.0)


class Loaded(Line):
    """A line whose SuperLink gives up the first uploads."""

    def __init__(self, refused):
        super().__init__("prompt", "prompt")
        self.refused, self.ids = refused, []

    def push_messages(self, messages):
        self.ids.append([message.object_id for message in messages])
        if len(self.ids) <= self.refused:
            raise ObjectPushError("object", 1, "session")
        return super().push_messages(messages)


def test_an_upload_that_the_superlink_gives_up_is_repeated(ask_all, monkeypatch):
    monkeypatch.setattr(asking, "_PUSH_AGAIN_SECONDS", (0.01, 0.01, 0.01))
    line = Loaded(3)
    assert ask_all(line, 30.0).keys() == {0, 1}
    assert len(line.ids) == 4 and line.ids[1:] == line.ids[:-1]  # the same messages each time


def test_a_superlink_that_gives_up_every_upload_is_explained(ask_all, monkeypatch):
    monkeypatch.setattr(asking, "_PUSH_AGAIN_SECONDS", (0.01, 0.01, 0.01))
    with pytest.raises(UserError, match=r"gave up their upload 4 times; .* resume the run$"):
        ask_all(Loaded(4), 30.0)
