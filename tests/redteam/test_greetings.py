"""One node of six greets wrongly: it is left out by name, and the run goes on."""

import logging

import pytest
from support.altered import crash, described, records

import client_app
from dance_flwr.config.tree import flatten, parse
from dance_flwr.errors import ProtocolError, UserError
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.server.session import join
from dance_flwr.federation.wire import keys
from dance_flwr.fingerprint import PROTOCOL
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS, LIAR = 5, 3
SETTINGS = {"method": "fedavg-full", "clients": CLIENTS, "rounds": 1}


MALFORMED = {
    "an exception": crash,
    "no content": records(config=None),
    "a text for a number": described(partition="three"),
    "a number below 0": described(partition=-1),
    "one fact more": described(surprise=1),
    "data of its own among clients of one partition": described(owns_data=True),
    "another protocol": described(protocol=PROTOCOL + 1),
}


def lying(change):
    """The ClientApp, with one client whose greeting is altered."""

    def app(message, context):
        reply = client_app.app(message, context)
        liar = context.node_config["partition-id"] == LIAR
        hello = message.metadata.message_type == keys.HELLO
        return change(reply) if liar and hello else reply

    return app


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_greeting_is_left_out_by_name_and_the_run_goes_on(run, caplog, name):
    with caplog.at_level(logging.WARNING, "flwr"):
        finished = run(app=lying(MALFORMED[name]), **SETTINGS)
    (row,) = finished.result["history"]
    assert sorted(map(int, row["bytes_up"])) == [0, 1, 2, 4]
    assert list(row["absent"]) == [str(LIAR)]
    lines = [line.getMessage() for line in caplog.records]
    # Node 4 is that of client 3, or the greeting itself named the client.
    named = ("node 4: expected", f"client {LIAR}: expected", f"found one for clients [{LIAR}]")
    assert any(part in line for line in lines for part in named)
    assert any(f"client {LIAR} takes no part in this run" in line for line in lines)


def joined(nodes, **keys_):
    """The clients and nodes that a run of these nodes starts with."""
    config = parse({"clients": CLIENTS, "node-timeout": 0.1, **keys_})
    grid = InProcessGrid(client_app.app, flatten(config), nodes)
    return {member.client: member.node for member in join(grid, config, MessageLog())}


@pytest.fixture
def nodes():
    """Five nodes with data of their own, node K + 1 of client K."""
    return {k + 1: {"partition-id": k, "data-path": f"/srv/client-{k}"} for k in range(CLIENTS)}


def test_two_nodes_with_one_number_are_both_left_out(nodes, caplog):
    """Which of them is the client, nobody can say without keys."""
    stranger = {"partition-id": 1, "data-path": "/srv/other"}
    with caplog.at_level(logging.WARNING, "flwr"):
        assert joined(nodes | {9: stranger}) == {0: 1, 2: 3, 3: 4, 4: 5}
    (line,) = {text for text in caplog.messages if "partition-id=1" in text}
    assert "nodes 2 and 9" in line and "node-keys" in line


def test_a_start_below_its_quorum_says_why(nodes):
    for k in (0, 1, 2):
        nodes[k + 11] = nodes[k + 1] | {"data-path": "/srv/other"}
    with pytest.raises(UserError, match="two with partition-id=0"):
        joined(nodes)
    with pytest.raises(UserError, match="two with partition-id=0"):
        joined({node: nodes[node] for node in (1, 2, 3, 4, 5, 11)}, **{"min-valid-replies": 5})


def test_a_node_that_is_down_at_the_start_costs_its_client_alone(nodes):
    del nodes[3]
    assert joined(nodes) == {0: 1, 1: 2, 3: 4, 4: 5}
    for each in nodes.values():  # in a simulation it is a setting that is wrong
        del each["data-path"]
    with pytest.raises(UserError, match=r"found none for \[2\]"):
        joined(nodes)


@pytest.mark.parametrize(
    "privacy",
    [
        {"privacy.secure-aggregation": True},
        {"privacy.dp": "local", "privacy.epsilon": 8.0},
    ],
    ids=["masks", "noise"],
)
def test_masks_and_noise_are_made_for_all_clients(nodes, privacy):
    """Their sums are bound to the clients of the first one, their noise to the number of all."""
    nodes[9] = nodes[2]
    with pytest.raises(UserError, match="two with partition-id=1"):
        joined(nodes, **privacy)


def test_a_protocol_of_another_release_is_refused_where_all_are_needed(run):
    with pytest.raises(ProtocolError, match=f"client {LIAR}: expected protocol"):
        run(app=lying(MALFORMED["another protocol"]), min_valid_replies=CLIENTS, **SETTINGS)
