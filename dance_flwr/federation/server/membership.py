"""Find the clients of a run and what their data requires."""

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.options import Value
from dance_flwr.config.sections import FederationConfig
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.errors import ProtocolError, UserError
from dance_flwr.federation.secagg import signatures
from dance_flwr.federation.server.deadline import timeout_of
from dance_flwr.federation.server.grid import LOG, POLL_NODES_SECONDS, FederationGrid
from dance_flwr.federation.server.message_log import MessageLog
from dance_flwr.federation.server.polling import ask, is_lost
from dance_flwr.federation.server.reply_checks import hello_fault
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.fingerprint import PROTOCOL, VERSION

_FEWEST = 2  # clients of a federation whose configuration does not say how many


@dataclass(frozen=True)
class Member:
    """One client of the federation."""

    node: int
    client: int
    owns_data: bool


def with_clients(values: Mapping[str, Value], grid: Grid) -> dict[str, Value]:
    """Return flat keys in which `clients` is the number of SuperNodes where it is 0.

    Counted as soon as there are two, and no more of them than a second before.

    Raises
    ------
    UserError : fewer than two after `node-timeout` seconds
    """
    if values.get(keys.CLIENTS) != 0:
        return dict(values)
    seconds = values.get("node-timeout", FederationConfig.node_timeout)
    deadline = time.monotonic() + (seconds if isinstance(seconds, int | float) else 0)
    before, nodes = 0, len(list(grid.get_node_ids()))
    while nodes < _FEWEST or nodes != before:
        if time.monotonic() > deadline and nodes < _FEWEST:
            raise UserError(
                f"expected at least {_FEWEST} SuperNodes, one per client, found {nodes}; in "
                'simulation pass --federation-config "num-supernodes=5"'
            )
        time.sleep(2 * POLL_NODES_SECONDS)
        before, nodes = nodes, len(list(grid.get_node_ids()))
    return {**values, keys.CLIENTS: nodes}


def join(grid: Grid, config: RunConfig, log: MessageLog) -> list[Member]:
    """Send HELLO to all nodes and return the clients of the run in order.

    A node is left out, and logged, whose greeting is malformed, of another protocol, or names the
    number that another node names; with `node-keys` also one whose greeting is not signed by the
    client that it names. The run needs a quorum of its clients 0..M-1; in a simulation, where no
    node is on a machine of its own, every node must be there.

    Raises
    ------
    UserError : fewer SuperNodes than a quorum after `node-timeout` seconds, too many clients
        without a SuperNode, or only some of them with data of their own
    ProtocolError : too few clients, and one speaks another protocol than the server
    """
    nodes, replies = _greet(grid, config, log)
    members: list[Member] = []
    faults: list[UserError] = []
    for reply in _authentic(replies, config.node_keys, grid.run.run_id):
        try:
            members.append(_member(reply))
        except UserError as error:  # of a node that the run may not need
            faults.append(error)
    for check in (_one_per_client, _of_same_data):
        members, refused = check(members)
        faults += refused
    members = [member for member in members if member.client < config.clients]
    for fault in faults:
        LOG.error("%s", fault)
        events.emit("greeting_refused", str(fault), logging.ERROR)
    missing = sorted({*range(config.clients)} - {member.client for member in members})
    silent = len(nodes) - len(replies)
    # In a simulation, a node that is not there is a setting, and no machine that is down.
    simulated = not any(member.owns_data for member in members) and not faults and not silent
    if missing and (simulated or len(members) < quorum(config, config.clients)):
        raise _too_few(config, missing, faults, silent)
    for each in members:
        line = f"client {each.client} joined"
        events.emit("client_joined", line, client=each.client, node=str(each.node))
    return members


def _one_per_client(members: list[Member]) -> tuple[list[Member], list[UserError]]:
    """Return the members whose number no other has, by number, and why the others are left out."""
    by_number: dict[int, list[Member]] = {}
    for member in members:
        by_number.setdefault(member.client, []).append(member)
    # Which of two is the right one nobody can say without keys: neither takes part, or whoever is
    # faster would take the place of a client.
    faults = [
        UserError(
            f"expected one SuperNode per client, found two with partition-id={client}, nodes "
            f"{' and '.join(sorted(str(member.node) for member in same))}; give each its own "
            "partition-id in --node-config, and set `node-keys`, which shows which is the client"
        )
        for client, same in sorted(by_number.items())
        if len(same) > 1
    ]
    return [same[0] for _, same in sorted(by_number.items()) if len(same) == 1], faults


def _of_same_data(members: list[Member]) -> tuple[list[Member], list[UserError]]:
    """Return the members that bring data as most do, and why the others are left out."""
    # Clients of one run are parts of one partition, or bring their own data; not some of each.
    owners = [member for member in members if member.owns_data]
    others = [member for member in members if not member.owns_data]
    if not owners or not others:
        return members, []
    usual, unusual = (owners, others) if len(owners) > len(others) else (others, owners)
    named = [member.client for member in unusual]
    fault = UserError(
        "expected a data-path in the node config of every SuperNode or of none, found "
        f"{'none' if unusual is others else 'one'} for clients {named}; "
        "start them with --node-config 'data-path=\"/abs/client-K\"', or all without"
    )
    return usual, [fault]


def _too_few(
    config: RunConfig, missing: list[int], faults: list[UserError], silent: int
) -> UserError:
    """Return why a run does not start, by what its operator can do about it."""
    # The error of a node that answered says more than the number of a missing client.
    if faults:
        return faults[0]
    if silent:
        return UserError(
            f"expected a greeting of every SuperNode in time, found none of {silent} and none for "
            f"clients {missing}; raise round-timeout or look at the logs of the others"
        )
    return UserError(
        f"expected SuperNodes with partition-id 0..{config.clients - 1}, found none for "
        f"{missing}; start them, or lower `clients`"
    )


def _member(reply: Message) -> Member:
    """Return the client that answered HELLO."""
    node = reply.metadata.src_node_id
    if reply.has_error():
        raise UserError(
            f"node {node}: expected a greeting, found an error: {str(reply.error.reason).strip()}"
        )
    stated = wire.config_of(reply)
    # Why (decision 26): before the rest is read, as other releases may state more.
    if (protocol := stated[keys.PROTOCOL]) != PROTOCOL:
        raise ProtocolError(
            f"client {stated[keys.PARTITION]}: expected protocol {PROTOCOL} of the server, found "
            f"{protocol}; install dance-flwr {VERSION} on that node, or stop the SuperLink "
            "that was started in another project"
        )
    hello = wire.read_hello(reply)
    return Member(node, hello.partition, hello.owns_data)


def _authentic(replies: list[Message], node_keys: str, run: int) -> list[Message]:
    """Return the greetings signed by the client that they name; all without `node-keys`."""
    known = signatures.read_peer_keys(Path(node_keys)) if node_keys else None
    authentic = []
    for reply in replies:
        if known is not None and not reply.has_error():
            node, claim = reply.metadata.src_node_id, signatures.read_claim(reply)
            stated = wire.config_of(reply).get(keys.PARTITION)
            client = stated if type(stated) is int else -1
            key = known.get(client)
            # Run and node are in the text: another node cannot repeat a greeting, nor another run.
            text = signatures.hello_text(run, node, client)
            if not (claim and key and signatures.is_signed(text, claim.signature, key)):
                events.emit(
                    "greeting_refused",
                    f"node {node}: expected a greeting signed with the key of client {client} in "
                    "`node-keys`, found another signature or none; it does not take part",
                    logging.WARNING,
                    client=client,
                    node=str(node),
                )
                continue
        authentic.append(reply)
    return authentic


def _greet(grid: Grid, config: RunConfig, log: MessageLog) -> tuple[list[int], list[Message]]:
    """Send HELLO to all nodes; return the nodes and their replies.

    Asks again while a node is gone: a restarted SuperLink lists lost nodes as connected at first.
    """
    deadline = time.monotonic() + config.node_timeout
    while True:
        nodes = _wait_for_nodes(grid, config, deadline)
        greetings = [wire.query(keys.HELLO, node, {}) for node in nodes]
        replies = ask(grid, greetings, timeout_of(config), log, hello_fault)
        # A lost node that is back within `node-timeout` is one of the run's clients.
        if not any(map(is_lost, replies)) or time.monotonic() > deadline:
            return nodes, replies
        time.sleep(POLL_NODES_SECONDS)


def _wait_for_nodes(grid: Grid, config: RunConfig, deadline: float) -> list[int]:
    while len(nodes := list(grid.get_node_ids())) < config.clients:
        if time.monotonic() > deadline and len(nodes) >= quorum(config, config.clients):
            return nodes
        if time.monotonic() > deadline:
            raise UserError(
                f"expected {config.clients} SuperNodes, one per client, found {len(nodes)}; in "
                "simulation pass "
                f'--federation-config "num-supernodes={config.clients}", in deployment start the '
                "missing SuperNodes"
            )
        time.sleep(POLL_NODES_SECONDS)
    return nodes


def describe(
    grid: FederationGrid,
    config: Mapping[str, Any],
    timeout: float,
) -> dict[int, wire.Schema]:
    """Ask every client what its data requires; return the answers of those that agree.

    A client whose answer is missing, or is not that of most clients, takes no part in the run, as
    long as a quorum is left.

    Raises
    ------
    QuorumError : too few clients answered
    UserError : too few agree on classes, text width or encoder
    """
    batch = [wire.describe(node, str(config[keys.PARTITION_DIR])) for node in grid.nodes]
    replies = grid.send_and_receive(batch, timeout=timeout)
    schemas = {grid.client_of(reply): wire.read_schema(reply) for reply in replies}
    # Clients of other classes or another encoder cannot share a model: most of them decide.
    usual, many = Counter(map(_required, schemas.values())).most_common(1)[0]
    agree = {client: schema for client, schema in schemas.items() if _required(schema) == usual}
    faults = {
        client: _difference(schemas[client], usual, next(iter(agree)))
        if client in schemas
        else grid.absent.get(client, "no answer")
        for client in grid.clients
        if client not in agree
    }
    # A run goes on without the others as far as it would without silent clients.
    if many < grid.quorum(len(grid.clients)):
        raise UserError("; ".join(f"client {client}: {why}" for client, why in faults.items()))
    for client, why in faults.items():
        grid.leave_out(client, why)
    # Later replies are bounded by what these clients described.
    grid.keep(agree)
    return agree


def _required(schema: wire.Schema) -> tuple[object, ...]:
    """Return what all clients of a run must have in common."""
    return tuple(getattr(schema, what) for what in keys.SCHEMA_COMMON)


def _difference(schema: wire.Schema, usual: tuple[object, ...], one: int) -> str:
    """Return in words where a description differs from that of most clients."""
    pairs = zip(keys.SCHEMA_COMMON, _required(schema), usual, strict=True)
    what, value, expected = next(each for each in pairs if each[1] != each[2])
    return (
        f"expected the same {what.replace('_', ' ')} at all clients, found {expected!r} "
        f"at client {one} and {value!r} here; prepare them alike"
    )


def missing_numbers(clients: int) -> str:
    """Return the error of a run that cannot go on without the numbers of all clients."""
    return (
        f"secure aggregation: expected the numbers of all {clients} clients in one sum, found that "
        "one was absent, or that peer-keys or an earlier sum of a node name other clients; start "
        "the absent ones and resume the run, or read a node's log and docs/privacy.md, "
        "Differences of sums"
    )
