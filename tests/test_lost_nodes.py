"""Nodes that Flower gives up in the middle of a round: asked again once they are back, where the quorum needs them."""

import time
from threading import Event

import pytest
from flwr.app import Error, Message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode

from dance_flwr.errors import QuorumError, UserError
from dance_flwr.strategies.asking import _collect_apart

GONE = Error(ErrorCode.NODE_UNAVAILABLE, "the node is not available")
DIED = Error(ErrorCode.UNKNOWN, "<class 'ray.exceptions.ActorDiedError'>:<'The actor died unexpectedly'>")


class Lost:
    """The client app behind a network that loses clients for one message each, in round 2."""

    def __init__(self, clients, kind="train", times=1, error=GONE):
        self.left = dict.fromkeys(clients, times)
        self.kind, self.error = kind, error

    def __call__(self, message, context):
        import client_app

        client, asked = context.node_config["partition-id"], message.content.config_records.get("config", {})
        struck = message.metadata.message_type == self.kind and asked.get("server-round", 2) == 2
        if struck and self.left.get(client, 0):
            self.left[client] -= 1
            reply = Message(self.error, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID  # it is the SuperLink that says so
            return reply
        return client_app.app(message, context)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("clients", [[1], [0, 1, 2]])
def test_a_round_waits_for_nodes_that_come_back(run, dance, kind, clients):
    lost = Lost(clients, kind, times=2)
    finished = run(app=lost)
    assert not any(lost.left.values())
    assert finished.result["model_fingerprint"] == dance.result["model_fingerprint"]
    assert finished.result["test_accuracy"] == dance.result["test_accuracy"]
    assert not any(row["absent"] for row in finished.result["history"])


def test_clients_of_a_ray_worker_that_died_are_asked_again(run, dance):
    assert run(app=Lost([0, 1], error=DIED)).result["model_fingerprint"] == dance.result["model_fingerprint"]


def test_a_client_that_kills_every_worker_ends_the_run(run):
    lost = Lost([1], times=10**6, error=DIED)
    with pytest.raises(QuorumError, match=r"client 1: .*ActorDiedError"):
        run(app=lost)
    assert 10**6 - lost.left[1] < 10


def test_nodes_that_only_seem_connected_are_greeted_again(run, dance):
    lost = Lost([0, 2], "query.hello", times=1)
    assert run(app=lost).result["model_fingerprint"] == dance.result["model_fingerprint"]
    with pytest.raises(UserError, match="expected a greeting, found an error: the node is not available"):
        run(app=Lost([0], "query.hello", times=10**6), node_timeout=1.0)


def test_a_round_with_a_quorum_does_not_wait(run):
    lost = Lost([1], times=2)
    assert run(app=lost, min_valid_replies=2).result["history"][1]["bytes_up"].get("1", 0) == 0
    assert lost.left[1] == 1


def test_noise_is_not_drawn_twice_for_one_round(run):
    with pytest.raises(QuorumError, match="client 1: the node is not available"):
        run(app=Lost([1]), privacy_dp="local", privacy_epsilon=500.0)


class Stuck:
    """A Grid whose reply to one message never arrives whole: Flower's call for it hangs."""

    def __init__(self, stuck):
        self.stuck, self.left, self.looks = stuck, Event(), 0

    def pull_messages(self, ids):
        self.looks += 1
        if self.stuck in ids:
            self.left.wait(60)
        if "broken" in ids:
            raise ConnectionError("no route to the SuperLink")
        return [
            f"reply to {key}" for key in ids if not key.startswith("late") or (key == "late" and self.left.is_set())
        ]


def test_a_node_that_dies_while_it_sends_holds_up_nobody_else():
    grid = Stuck("b")
    begin = time.monotonic()
    assert sorted(_collect_apart(grid, ["a", "b", "c"], 1.0)) == ["reply to a", "reply to c"]
    assert time.monotonic() - begin < 30
    begin, grid.looks = time.monotonic(), 0
    assert _collect_apart(grid, ["late"], 1.2) == []
    assert grid.looks <= 2 + (time.monotonic() - begin) / 0.5  # each look is a request
    grid.left.set()
    assert _collect_apart(grid, ["late"], None) == ["reply to late"]
    assert _collect_apart(grid, [], 1.0) == []
    with pytest.raises(ConnectionError, match="no route"):
        _collect_apart(grid, ["late-too", "broken"], 30.0)
    time.sleep(1.1)
    looks = grid.looks
    time.sleep(1.1)
    assert grid.looks == looks  # nobody looks on after the error
