"""Find the clients of a run and what their data requires; evaluate the final model on all."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import CodeMismatchError, UserError
from dance_flwr.federation.server.grid import POLL_NODES_SECONDS, FederationGrid
from dance_flwr.federation.server.ledger import Ledger
from dance_flwr.federation.server.polling import ask, is_lost
from dance_flwr.federation.wire import counts, keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.fingerprint import code_fingerprint
from dance_flwr.metrics import Counts


@dataclass(frozen=True)
class Member:
    """One client of the federation."""

    node: int
    client: int
    owns_data: bool


def join(grid: Grid, config: RunConfig, ledger: Ledger) -> list[Member]:
    """Send HELLO to all nodes and return the run's clients 0..M-1 in order.

    Raises
    ------
    UserError : fewer SuperNodes than clients after `node-timeout` seconds, clients without a
        SuperNode, or only some of them with data of their own
    CodeMismatchError : a client runs other code than the server
    """
    nodes, replies = _greet(grid, config, ledger)
    members: dict[int, Member] = {}
    for reply in replies:
        member = _member(reply)
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
    if len(members) < config.clients and len(replies) < len(nodes):
        raise UserError(
            f"expected a greeting of {len(nodes)} SuperNodes within {config.round_timeout:g} s, "
            "found only those of "
            f"clients {sorted(members)}; raise round-timeout or look at the logs of the others"
        )
    missing = [client for client in range(config.clients) if client not in members]
    if missing:
        raise UserError(
            f"expected SuperNodes with partition-id 0..{config.clients - 1}, found none for "
            f"{missing}; "
            "start them, or lower `clients`"
        )
    chosen = [members[client] for client in range(config.clients)]
    without = [member.client for member in chosen if not member.owns_data]
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
    CodeMismatchError : the client runs other code than the server
    """
    node = reply.metadata.src_node_id
    if reply.has_error():
        raise UserError(
            f"node {node}: expected a greeting, found an error: {str(reply.error.reason).strip()}"
        )
    hello = wire.read_hello(reply)
    if hello.code != code_fingerprint():
        raise CodeMismatchError(
            f"client {hello.partition}: expected the server's code {code_fingerprint()}, "
            f"found {hello.code}; stop the SuperLink that was started in another project, or "
            "install the same version on that node"
        )
    return Member(node, hello.partition, hello.owns_data)


def _greet(grid: Grid, config: RunConfig, ledger: Ledger) -> tuple[list[int], list[Message]]:
    """Send HELLO to all nodes; return the nodes and their replies.

    Asks again while a node is gone: a restarted SuperLink lists lost nodes as connected at first.
    """
    deadline = time.monotonic() + config.node_timeout
    while True:
        nodes = _wait_for_nodes(grid, config, deadline)
        greetings = [wire.query(keys.HELLO, node, {}) for node in nodes]
        replies = ask(grid, greetings, config.round_timeout, ledger)
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
    grid: FederationGrid, members: list[Member], partition_dir: Path | None, timeout: float
) -> list[wire.Schema]:
    """Ask every client what its data requires and check that all agree; return the answers.

    Raises
    ------
    UserError : a client did not answer, or clients disagree on classes, text width or encoder
    """
    batch = [wire.describe(member.node, str(partition_dir or "")) for member in members]
    replies = grid.send_and_receive(batch, timeout=timeout)
    if len(replies) < len(members):
        answered = [grid.client_of(reply) for reply in replies]
        reasons = "; ".join(f"client {client}: {reason}" for client, reason in grid.absent.items())
        raise UserError(
            f"expected a description of the data of {len(members)} clients, found only those of "
            f"{answered}; {reasons}"
        )
    schemas = [wire.read_schema(reply) for reply in replies]
    for what in ("class_names", "text_dim", "encoder_sha256"):
        for client, schema in enumerate(schemas):
            first, other = getattr(schemas[0], what), getattr(schema, what)
            if other != first:
                raise UserError(
                    f"expected the same {what.replace('_', ' ')} at all clients, found {first!r} "
                    "at client 0 and "
                    f"{other!r} at client {client}; prepare them alike"
                )
    return schemas


def final_counts(
    grid: FederationGrid,
    members: list[Member],
    model_for: Callable[[int], ArrayRecord],
    config: Mapping[str, Any],
    timeout: float,
    views: Sequence[str],
) -> dict[int | None, dict[str, Counts]]:
    """Evaluate the final model at every client and return counts by client.

    This is the only time that test nodes are read. Under secure aggregation the only entry is
    None, the sums over all clients.

    Parameters
    ----------
    model_for : returns the model that a client is sent
    config : of the messages, `wire.final_config`
    views : names of the views that a client may count
    """
    batch = [wire.evaluate(member.node, config, model_for(member.client)) for member in members]
    by_client: dict[int | None, dict[str, Counts]] = {}
    for reply in grid.send_and_receive(batch, timeout=timeout):
        metrics = wire.metrics_of(reply.content)
        by_client[grid.author(reply)] = {
            split: counts.read_counts(metrics, split, views) for split in ("val", "test")
        }
    return by_client
