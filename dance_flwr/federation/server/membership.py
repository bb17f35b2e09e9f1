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
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import ProtocolError, UserError
from dance_flwr.federation.secagg import signatures
from dance_flwr.federation.server.grid import LOG, POLL_NODES_SECONDS, FederationGrid
from dance_flwr.federation.server.message_log import MessageLog
from dance_flwr.federation.server.polling import ask, is_lost
from dance_flwr.federation.server.reply_checks import hello_fault
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.fingerprint import PROTOCOL, VERSION


@dataclass(frozen=True)
class Member:
    """One client of the federation."""

    node: int
    client: int
    owns_data: bool


def join(grid: Grid, config: RunConfig, log: MessageLog) -> list[Member]:
    """Send HELLO to all nodes and return the run's clients 0..M-1 in order.

    With `node-keys`, a node whose greeting is not signed by the client that it names is left out.

    Raises
    ------
    UserError : fewer SuperNodes than clients after `node-timeout` seconds, clients without a
        SuperNode, or only some of them with data of their own
    ProtocolError : a client speaks another protocol than the server
    """
    nodes, replies = _greet(grid, config, log)
    members: dict[int, Member] = {}
    faults: list[UserError] = []
    for reply in _authentic(replies, config.node_keys, grid.run.run_id):
        try:
            member = _member(reply)
        except UserError as error:  # of a node that the run may not need
            LOG.error("%s", error)
            faults.append(error)
            continue
        # Which of two is the right one nobody can say, so that the run does not start.
        if member.client in members:
            raise UserError(
                f"expected one SuperNode per client, found two with partition-id={member.client}; "
                "give each its own partition-id in --node-config"
            )
        members[member.client] = member
        events.emit(
            "client_joined",
            f"client {member.client} joined",
            client=member.client,
            node=str(member.node),
        )
    if len(members) < config.clients and len(replies) < len(nodes) and not faults:
        raise UserError(
            f"expected a greeting of {len(nodes)} SuperNodes within {config.round_timeout:g} s, "
            "found only those of "
            f"clients {sorted(members)}; raise round-timeout or look at the logs of the others"
        )
    missing = [client for client in range(config.clients) if client not in members]
    # The error of a node that answered says more than the number of a missing client.
    if missing and faults:
        raise faults[0]
    if missing:
        raise UserError(
            f"expected SuperNodes with partition-id 0..{config.clients - 1}, found none for "
            f"{missing}; "
            "start them, or lower `clients`"
        )
    chosen = [members[client] for client in range(config.clients)]
    without = [member.client for member in chosen if not member.owns_data]
    # Clients of one run are parts of one partition, or bring their own data; not some of each.
    if without and len(without) < len(chosen):
        raise UserError(
            "expected a data-path in the node config of every SuperNode or of none, found none "
            f"for clients {without}; "
            "start them with --node-config 'data-path=\"/abs/client-K\"'"
        )
    return chosen


def _member(reply: Message) -> Member:
    """Return the client that answered HELLO.

    Raises
    ------
    UserError : the answer is an error
    ProtocolError : the client speaks another protocol than the server
    """
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
    """Return the greetings that are signed by the client that they name; all without `node-keys`.

    Raises
    ------
    UserError : the file of keys is missing or damaged
    """
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
        replies = ask(grid, greetings, config.round_timeout, log, hello_fault)
        # A lost node that is back within `node-timeout` is one of the run's clients.
        if not any(map(is_lost, replies)) or time.monotonic() > deadline:
            return nodes, replies
        time.sleep(POLL_NODES_SECONDS)


def _wait_for_nodes(grid: Grid, config: RunConfig, deadline: float) -> list[int]:
    while len(nodes := list(grid.get_node_ids())) < config.clients:
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
    long as `min-valid-replies` allows.

    Parameters
    ----------
    config : of a message to clients

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
        LOG.error("client %d takes no part in this run: %s", client, why)
        grid.mark_absent("upload_rejected", client, why)
    # Later replies are bounded by what these clients described.
    grid.keep(agree)
    return agree


def _required(schema: wire.Schema) -> tuple[object, ...]:
    """Return what all clients of a run must have in common."""
    return tuple(getattr(schema, what) for what in keys.SCHEMA_COMMON)


def _difference(schema: wire.Schema, usual: tuple[object, ...], one: int) -> str:
    """Return in words where a description differs from that of most clients.

    Parameters
    ----------
    one : a client that has what most have
    """
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
