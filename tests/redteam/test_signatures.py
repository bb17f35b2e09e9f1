"""A server in the middle of secure aggregation: clients that it invents, survivors that differ.

Nodes have keys of their own, and the keys of all others from outside the server.
"""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from support.sums import (
    CLIENTS,
    THRESHOLD,
    Lying,
    altered,
    counting_app,
    nodes_with_keys,
    stage_of,
    weight,
)

import client_app
from dance_flwr.config.tree import flatten, parse
from dance_flwr.deploy.certificates import make_key
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.server.session import join
from dance_flwr.runs.simulation.in_process import InProcessGrid

VICTIM = 1  # the node of client 0
NODES = range(1, CLIENTS + 1)


@pytest.fixture
def nodes(tmp_path):
    return nodes_with_keys(tmp_path)


def test_a_sum_with_keys_is_that_of_all_clients(nodes):
    assert Lying(nodes).total() == sum(map(weight, range(CLIENTS)))


def test_one_of_five_may_fall_silent_when_survivors_are_signed(nodes):
    counting = counting_app()

    def app(message, context):
        late = stage_of(message) in ("survivors", Stage.UNMASK)
        if late and context.node_config["partition-id"] == 3:
            raise ConnectionError("gone")
        return counting(message, context)

    assert Lying(nodes, app=app).total() == sum(map(weight, range(CLIENTS)))


def unsigned(node, config, folder):
    return {"partition-id": config["partition-id"]}


def with_keys_of_the_server(node, config, folder):
    make_key(folder / f"server-{node}.key")
    return unsigned(node, config, folder) | {"signing-key": str(folder / f"server-{node}.key")}


def all_with_the_key_of_one_who_colludes(node, config, folder):
    return unsigned(node, config, folder) | {"signing-key": str(folder / f"{CLIENTS - 1}.key")}


def all_as_the_one_who_colludes(node, config, folder):
    return all_with_the_key_of_one_who_colludes(node, {"partition-id": CLIENTS - 1}, folder)


INVENTED = [
    unsigned,
    with_keys_of_the_server,
    all_with_the_key_of_one_who_colludes,
    all_as_the_one_who_colludes,
]


@pytest.mark.parametrize("invented", INVENTED)
def test_a_client_alone_among_clients_of_the_server_does_not_take_part(nodes, invented, tmp_path):
    """The server follows the protocol, knows the vectors of all but one, and subtracts them."""
    mine = {node: invented(node, config, tmp_path) for node, config in nodes.items()}
    grid = Lying(mine | {VICTIM: nodes[VICTIM]})
    known = sum(weight(mine[node]["partition-id"]) for node in NODES if node != VICTIM)
    found = known  # where the server finds nothing
    with suppress(QuorumError, UserError):
        found = grid.total()
    assert found - known != weight(0)
    assert grid.answers(Stage.SHARE_KEYS, VICTIM)[0].has_error()
    assert not grid.answers(Stage.COLLECT_MASKED_VECTORS, VICTIM)


def test_public_keys_that_the_server_swaps_are_refused(nodes):
    """Two clients whose keys change places would make masks that nobody else knows of."""

    def swap(message):
        if stage_of(message) != Stage.SHARE_KEYS or message.metadata.dst_node_id != VICTIM:
            return message
        stage = message.content.config_records[SECAGG_CONFIGS]
        return altered(message, **{"2": stage["3"], "3": stage["2"]})

    grid = Lying(nodes, swap)
    with suppress(QuorumError, UserError):
        grid.total()
    assert grid.answers(Stage.SHARE_KEYS, VICTIM)[0].has_error()


# Node -> whom the server calls dead there. Three clients each give a share of the keys of nodes 3,
# 4 and 5, and all five one of the seeds of nodes 1 and 2: the sum of these two alone can be read.
DEAD = {1: {3, 4}, 2: {3, 5}, 3: {4, 5}, 4: {3, 5}, 5: {4}}


def divided(message, dead):
    """The message with this set of dead clients, if it names any."""
    if Key.DEAD_NODE_ID_LIST not in message.content.config_records[SECAGG_CONFIGS]:
        return message
    alive = sorted(set(NODES) - dead)
    return altered(message, **{Key.ACTIVE_NODE_ID_LIST: alive, Key.DEAD_NODE_ID_LIST: sorted(dead)})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (Key.MAX_WEIGHT, 1e300),
        (Key.CLIPPING_RANGE, 1e-300),
        (Key.TARGET_RANGE, 2),
        (Key.MOD_RANGE, 2**16),
    ],
)
def test_other_factors_for_all_but_one_do_not_leave_that_one_alone_in_the_sum(nodes, key, value):
    """With a largest weight of 1e300 a vector is a constant: the sum of five was the victim's."""

    def lie(message):
        if stage_of(message) == Stage.SETUP and message.metadata.dst_node_id != VICTIM:
            return altered(message, **{key: value})
        return message

    grid = Lying(nodes, lie)
    with pytest.raises((QuorumError, UserError)):
        grid.total()
    collected = [grid.answers(Stage.COLLECT_MASKED_VECTORS, node)[0] for node in NODES]
    refused = {node for node, reply in zip(NODES, collected, strict=True) if reply.has_error()}
    assert refused == {node for node in NODES if node != VICTIM}


def test_clients_that_are_told_different_survivors_do_not_unmask_a_sum_of_two(nodes):
    grid = Lying(nodes, lambda message: divided(message, DEAD[message.metadata.dst_node_id]))
    with suppress(QuorumError, UserError, ValueError):
        grid.total()
    shares = Counter()
    for node in NODES:
        for reply in grid.answers(Stage.UNMASK, node):
            if not reply.has_error():
                answer = reply.content.config_records[SECAGG_CONFIGS]
                shares.update((owner, owner in DEAD[node]) for owner in answer[Key.NODE_ID_LIST])
    needed = [(node, node > 2) for node in NODES]
    assert [secret for secret in needed if shares[secret] >= THRESHOLD] != needed


def test_signatures_of_an_earlier_sum_are_refused(nodes):
    """In the first sum all live. In the second the server calls client 4 dead, but not for one."""
    signed, second = [], []

    def lie(message):
        stage, node = stage_of(message), message.metadata.dst_node_id
        if stage == Stage.UNMASK and "signed" in message.content and not second:
            signed.append(message.content["signed"])
        if not second:
            return message
        changed = divided(message, set() if node == VICTIM else {CLIENTS})
        if stage == Stage.UNMASK and node == VICTIM and signed:
            changed.content["signed"] = signed[0]
        return changed

    grid = Lying(nodes, lie)
    assert grid.total() == sum(map(weight, range(CLIENTS)))
    second.append(True)
    with suppress(QuorumError, UserError, ValueError):
        grid.total()
    assert [reply.has_error() for reply in grid.answers(Stage.UNMASK, VICTIM)] == [False, True]


def test_a_client_signs_one_set_of_survivors_per_sum(nodes):
    """A server that asks twice collects signatures for two sets."""
    twice = []

    def lie(message):
        if stage_of(message) == "survivors":
            changed = divided(message, {CLIENTS})
            twice.append(grid._app(changed, grid._contexts[changed.metadata.dst_node_id]))
        return message

    grid = Lying(nodes, lie)
    with suppress(QuorumError, UserError):
        grid.total()
    answers = [reply for node in NODES for reply in grid.answers("survivors", node)]
    assert len(answers) == len(twice) == CLIENTS
    assert all(reply.has_error() for reply in answers)
    assert not any(reply.has_error() for reply in twice)


@pytest.fixture
def greeted(nodes, tmp_path):
    """A function that returns client -> node of a federation of three with these nodes."""

    def start(node_configs):
        keys = {"clients": 3, "node-timeout": 0.1, "node-keys": str(tmp_path / "peer-keys")}
        config = parse(keys)
        grid = InProcessGrid(client_app.app, flatten(config), node_configs)
        return {member.client: member.node for member in join(grid, config, MessageLog())}

    return start


def test_a_node_that_greets_with_the_number_of_another_is_left_out(greeted, nodes):
    liars = {8: nodes[4] | {"partition-id": 0}, 9: {"partition-id": 1}}
    liars[8].pop("peer-keys")
    assert greeted({1: nodes[1], **liars, 2: nodes[2], 3: nodes[3]}) == {0: 1, 1: 2, 2: 3}
    with pytest.raises(UserError, match=r"found none for \[0, 1\]"):
        greeted({**liars, 3: nodes[3]})


def test_a_node_whose_key_is_not_that_of_its_number_says_so(nodes):
    """An operator's mistake, which the others would take for an attack."""
    config = nodes[2] | {"partition-id": 0}
    with pytest.raises(UserError, match="peer-keys: expected the public half of signing-key"):
        join(
            InProcessGrid(client_app.app, {}, {1: config}),
            parse({"clients": 1, "node-timeout": 0.1}),
            MessageLog(),
        )


def test_a_file_of_keys_that_is_damaged_is_named(nodes):
    path = Path(nodes[1]["peer-keys"])
    good = path.read_text()
    for bad, problem in {
        "": "expected one key per client, found none",
        good + good.splitlines()[0]: "expected a client's number that no other line has",
        good + "7 ssh-rsa AAAA": "expected a public ECDSA key",
        good + "7 " + good.splitlines()[0].partition(" ")[2]: r"the same key for clients \[0, 7\]",
    }.items():
        path.write_text(bad)
        with pytest.raises(UserError, match=problem):
            read(path)
    path.unlink()
    with pytest.raises(UserError, match="expected the keys of all nodes"):
        read(path)


def read(path):
    from dance_flwr.federation.secagg.signatures import read_peer_keys

    return read_peer_keys(path)
