"""How long a server waits by default, and how many replies are enough."""

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import QuorumError
from dance_flwr.federation.privacy.dp import fewest_clients
from dance_flwr.federation.server import polling
from dance_flwr.federation.server.grid import FederationGrid
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.wire import keys
from dance_flwr.runs.simulation.in_process import InProcessGrid


class Delayed(InProcessGrid):
    """A Grid whose node K delivers its replies after `seconds[K]`."""

    def __init__(self, seconds):
        super().__init__(answer, {}, len(seconds))
        self.seconds, self.due = dict(enumerate(seconds, 1)), {}

    def push_messages(self, messages):
        keys_ = list(super().push_messages(messages))
        for key, message in zip(keys_, messages, strict=True):
            self.due[key] = time.monotonic() + self.seconds[message.metadata.dst_node_id]
        return keys_

    def pull_messages(self, message_ids):
        return super().pull_messages([k for k in message_ids if self.due[k] <= time.monotonic()])


def answer(message, context):
    return Message(RecordDict({"facts": ConfigRecord({"a": 1})}), reply_to=message)


@pytest.fixture
def quick(monkeypatch):
    """An hour is a second, five minutes 0.2 s."""
    monkeypatch.setattr(polling, "_LONGEST_SECONDS", 1.0)
    monkeypatch.setattr(polling, "_SHORTEST_SECONDS", 0.2)


def asked(*seconds, timeout=polling.ADAPTIVE):
    """The nodes that answered in time, and how long that took."""
    grid, begin = Delayed(seconds), time.monotonic()
    batch = [
        Message(RecordDict({}), dst_node_id=node, message_type=keys.TRAIN)
        for node in range(1, len(seconds) + 1)
    ]
    replies = polling.ask(grid, batch, timeout, MessageLog())
    return sorted(reply.metadata.src_node_id for reply in replies), time.monotonic() - begin


NEVER = 10**6


def test_most_clients_say_how_long_a_round_takes(quick):
    answered, seconds = asked(0, 0, 0, NEVER)
    assert answered == [1, 2, 3] and 0.2 <= seconds < 0.6
    # Ten times 0.06 s, so that a slow client is none that is gone.
    assert asked(0.06, 0.06, 0.06, 0.4)[0] == [1, 2, 3, 4]


def test_half_of_the_clients_say_nothing(quick):
    answered, seconds = asked(0, 0, NEVER, NEVER)
    assert answered == [1, 2] and 1.0 <= seconds < 1.5
    assert asked(0, 0.6)[0] == [1, 2]


def test_a_timeout_of_the_configuration_is_exact(quick):
    answered, seconds = asked(0, 0, 0, NEVER, timeout=0.4)
    assert answered == [1, 2, 3] and 0.4 <= seconds < 0.8
    assert polling.timeout_of(RunConfig()) == polling.ADAPTIVE
    assert polling.timeout_of(parse({"round-timeout": 12.0})) == 12.0


@pytest.mark.parametrize(
    ("clients", "fewest"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3), (6, 4), (20, 11)]
)
def test_most_clients_are_a_quorum_and_never_fewer_than_three(clients, fewest):
    assert fewest_clients(parse({"clients": clients})) == fewest
    assert fewest_clients(parse({"clients": clients, "min-valid-replies": 1})) == 1
    private = {"privacy.dp": "central", "privacy.epsilon": 8.0}
    assert fewest_clients(parse({"clients": clients, **private})) == clients


def test_a_silent_client_of_five_costs_its_round_alone(quick):
    config = parse({"clients": 5})
    grid = FederationGrid(
        Delayed([0, 0, NEVER, 0, 0]), {k + 1: k for k in range(5)}, config, MessageLog()
    )
    grid.checks.fault = lambda request, reply: ""
    batch = [
        Message(RecordDict({}), dst_node_id=node, message_type=keys.TRAIN) for node in grid.nodes
    ]
    replies = grid.send_and_receive(batch, timeout=polling.timeout_of(config))
    assert [grid.client_of(reply) for reply in replies] == [0, 1, 3, 4]
    assert grid.take_absent() == {2: "no reply in ten times the time of most clients"}
    silent = FederationGrid(
        Delayed([0, 0, NEVER, NEVER, NEVER]), {k + 1: k for k in range(5)}, config, MessageLog()
    )
    silent.checks.fault = lambda request, reply: ""
    with pytest.raises(QuorumError, match="expected at least 3 valid replies, found 2"):
        silent.send_and_receive(batch, timeout=polling.timeout_of(config))
