"""Start and end of a run: who takes part, what their data requires, final counts and hashes.

All clients of a run read texts and edges alike, as the sum of their votes elects.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.client_data.reading_probe import chosen_keys, elect, is_settled
from dance_flwr.config.options import Value
from dance_flwr.config.sections import PERSONAL, FederationConfig, reading_of
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.errors import ProtocolError, QuorumError, UserError
from dance_flwr.federation.secagg import signatures
from dance_flwr.federation.server.checks import hello_fault
from dance_flwr.federation.server.grid import (
    LOG,
    POLL_NODES_SECONDS,
    FederationGrid,
    SecureGrid,
    missing_numbers,
    wait_for_nodes,
)
from dance_flwr.federation.server.polling import MessageLog, ask, is_lost, timeout_of
from dance_flwr.federation.server.replies import (
    read_counts,
    read_hello,
    read_schema,
    read_tokens,
    sum_metrics,
)
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.fingerprint import PROTOCOL, VERSION
from dance_flwr.methods import final_views
from dance_flwr.metrics import Counts, Tokens
from dance_flwr.nn.calibration import trimmed

_FEWEST = 2  # clients of a federation whose configuration does not say how many


@dataclass(frozen=True)
class Member:
    """One client of the federation."""

    node: int
    client: int
    owns_data: bool


def with_clients(values: Mapping[str, Value], grid: Grid) -> dict[str, Value]:
    """Return flat keys with `clients` = 0 replaced by the number of SuperNodes.

    Counts once there are two, and as many as a second before.

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

    Leaves out, and logs, a node with a malformed greeting, another protocol, or a client number
    that another node names too; with `node-keys` also a node without its client's signature.
    The run needs a quorum of its clients 0..M-1; a simulation, where no node is on a machine of its
    own, needs all of them.

    Raises
    ------
    UserError : fewer SuperNodes than a quorum after `node-timeout` seconds, too many clients
        without a SuperNode, or only some of them with data of their own
    ProtocolError : too few clients, and one speaks another protocol than the server
    """
    nodes, replies = _greet(grid, config, log)
    members: list[Member] = []
    faults: list[UserError] = []  # of nodes that the run may not need
    for reply in _authentic(replies, config.node_keys, grid.run.run_id):
        try:
            members.append(_member(reply))
        except UserError as error:
            faults.append(error)
    members = _of_same_data(_one_per_client(members, faults), faults)
    members = [member for member in members if member.client < config.clients]
    for fault in faults:
        LOG.error("%s", fault)
        events.emit("greeting_refused", str(fault), logging.ERROR)
    missing = sorted({*range(config.clients)} - {member.client for member in members})
    silent = len(nodes) - len(replies)
    # In a simulation, a missing node is a setting and not a machine that is down.
    simulated = not any(member.owns_data for member in members) and not faults and not silent
    if missing and (simulated or len(members) < quorum(config, config.clients)):
        raise _too_few(config, missing, faults, silent)
    for each in members:
        line = f"client {each.client} joined"
        events.emit("client_joined", line, client=each.client, node=str(each.node))
    return members


def _one_per_client(members: list[Member], faults: list[UserError]) -> list[Member]:
    """Return the members with a number of their own, by number; add why the others are out."""
    by_number: dict[int, list[Member]] = {}
    for member in members:
        by_number.setdefault(member.client, []).append(member)
    # Without keys nobody can say which of two is the client. Neither takes part; otherwise whoever
    # is faster would take a client's place.
    faults += [
        UserError(
            f"expected one SuperNode per client, found two with partition-id={client}, nodes "
            f"{' and '.join(sorted(str(member.node) for member in same))}; give each its own "
            "partition-id in --node-config, and set `node-keys`, which shows which is the client"
        )
        for client, same in sorted(by_number.items())
        if len(same) > 1
    ]
    return [same[0] for _, same in sorted(by_number.items()) if len(same) == 1]


def _of_same_data(members: list[Member], faults: list[UserError]) -> list[Member]:
    """Return the larger group, members with their own data or without; add why others are out."""
    # All clients of a run are parts of one partition, or all bring their own data.
    owners = [member for member in members if member.owns_data]
    others = [member for member in members if not member.owns_data]
    if not owners or not others:
        return members
    usual, unusual = (owners, others) if len(owners) > len(others) else (others, owners)
    named = [member.client for member in unusual]
    faults.append(
        UserError(
            "expected a data-path in the node config of every SuperNode or of none, found "
            f"{'none' if unusual is others else 'one'} for clients {named}; "
            "start them with --node-config 'data-path=\"/abs/client-K\"', or all without"
        )
    )
    return usual


def _too_few(
    config: RunConfig, missing: list[int], faults: list[UserError], silent: int
) -> UserError:
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
    hello = read_hello(reply)
    return Member(node, hello.partition, hello.owns_data)


def _authentic(replies: list[Message], node_keys: str, run: int) -> list[Message]:
    """Return the greetings that their clients signed; without `node-keys` all of them."""
    if not node_keys:
        return replies
    known = signatures.read_peer_keys(Path(node_keys))

    def is_authentic(reply: Message) -> bool:
        node, claim = reply.metadata.src_node_id, signatures.read_claim(reply)
        stated = wire.config_of(reply).get(keys.PARTITION)
        client = stated if type(stated) is int else -1
        key = known.get(client)
        # The text names run and node, so that no other node or run can repeat a greeting.
        text = signatures.hello_text(run, node, client)
        if claim and key and signatures.is_signed(text, claim.signature, key):
            return True
        line = (
            f"node {node}: expected a greeting signed with the key of client {client} in "
            "`node-keys`, found another signature or none; it does not take part"
        )
        events.emit("greeting_refused", line, logging.WARNING, client=client, node=str(node))
        return False

    return [reply for reply in replies if reply.has_error() or is_authentic(reply)]


def _greet(grid: Grid, config: RunConfig, log: MessageLog) -> tuple[list[int], list[Message]]:
    deadline = time.monotonic() + config.node_timeout
    while True:
        nodes = wait_for_nodes(grid, config.clients, deadline - time.monotonic())
        if len(nodes) < quorum(config, config.clients):
            raise UserError(
                f"expected {config.clients} SuperNodes, one per client, found {len(nodes)}; in "
                f'simulation pass --federation-config "num-supernodes={config.clients}", in '
                "deployment start the missing SuperNodes"
            )
        greetings = [wire.query(keys.HELLO, node, {}) for node in nodes]
        replies = ask(grid, greetings, timeout_of(config), log, hello_fault)
        # Again while a node is gone: a restarted SuperLink lists lost nodes as connected at first,
        # and one that is back within `node-timeout` is a client of the run.
        if not any(map(is_lost, replies)) or time.monotonic() > deadline:
            return nodes, replies
        time.sleep(POLL_NODES_SECONDS)


def federate(
    grid: Grid, members: Sequence[Member], config: RunConfig, log: MessageLog
) -> FederationGrid:
    """Return the Grid of these members, with secure aggregation if the run asks for it."""
    client_of_node = {member.node: member.client for member in members}
    kind = SecureGrid if config.privacy.secure_aggregation else FederationGrid
    federation = kind(grid, client_of_node, config, log)
    for client in sorted({*range(config.clients)} - {*client_of_node.values()}):
        federation.leave_out(client, "no valid greeting at its start")
    return federation


def describe(
    grid: FederationGrid, config: Mapping[str, Any], timeout: float
) -> dict[int, wire.Schema]:
    """Ask every client what its data requires; return the answers of those that agree.

    A client without an answer, or with another one than most clients, takes no part in the run, as
    long as a quorum is left.

    Raises
    ------
    QuorumError : too few clients answered
    UserError : too few agree on classes, text width or encoder
    """
    asked = {keys.PARTITION_DIR: str(config[keys.PARTITION_DIR])}  # "" if clients own their data
    batch = [wire.query(keys.DESCRIBE, node, asked) for node in grid.nodes]
    replies = grid.send_and_receive(batch, timeout=timeout)
    schemas = {grid.client_of(reply): read_schema(reply) for reply in replies}
    # Clients with other classes or another encoder cannot share a model: the majority decides.
    required = {
        client: tuple(getattr(schema, what) for what in keys.SCHEMA_COMMON)
        for client, schema in schemas.items()
    }
    usual, many = Counter(required.values()).most_common(1)[0]
    agree = {client: schemas[client] for client, needs in required.items() if needs == usual}
    faults = {
        client: grid.absent.get(client, "no answer")
        for client in grid.clients
        if client not in agree
    }
    for client in required.keys() & faults.keys():
        what, value, expected = next(
            each
            for each in zip(keys.SCHEMA_COMMON, required[client], usual, strict=True)
            if each[1] != each[2]
        )
        faults[client] = (
            f"expected the same {what.replace('_', ' ')} at all clients, found {expected!r} "
            f"at client {next(iter(agree))} and {value!r} here; prepare them alike"
        )
    # A run goes on without the others as far as it would without silent clients.
    if many < grid.quorum(len(grid.clients)):
        raise UserError("; ".join(f"client {client}: {why}" for client, why in faults.items()))
    for client, why in faults.items():
        grid.leave_out(client, why)
    # Later replies are bounded by what these clients described.
    grid.keep(agree)
    return agree


def settled_reading(
    known: dict[str, Any], config: RunConfig, votes: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return the keys of the reading for every later message; `known` is filled once in a run."""
    if not known:
        known |= chosen_reading(config, votes)
    return {key: known[key] for key in (keys.TEXT_POOLING, keys.EDGE_GATES) if key in known}


def chosen_reading(config: RunConfig, votes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the keys of the reading that clients elect, and the sum; empty if nothing is open."""
    if is_settled(config):
        return {}
    chosen = chosen_keys(elect(reading_of(config), *votes))
    LOG.info("reading of all clients: %s", ", ".join(f"{k} = {v}" for k, v in chosen.items()))
    return {**chosen, "votes": [sum(every) for every in zip(*votes, strict=True)]}


def final_counts(
    grid: FederationGrid,
    model_for: Callable[[int], ArrayRecord],
    common: Mapping[str, Any],
    round_: int,
    config: RunConfig,
) -> tuple[dict[int | None, dict[str, Counts]], dict[int | None, Tokens], dict[str, float]]:
    """Evaluate the final model at every client. Test nodes are read this one time only.

    Returns
    -------
    counts by client and split; tokens of the run by client; what personal models cost a client on
    average, `seconds_personal` and `bytes_personal`, empty without them. Under secure aggregation
    the only client is None, the sum over all.
    """
    settings, timeout = {**common, keys.ROUND: round_, keys.FINAL: True}, timeout_of(config)
    costs: dict[str, float] = {}
    # Why not under differential privacy (decision 30): the losses are those of exact predictions.
    if PERSONAL[config.personal] and config.privacy.dp == "none":
        asked = {**common, keys.ROUND: round_, keys.PERSONALISE: True}
        longest = timeout * config.rounds  # a client may train for as many rounds as the run
        sums, costs = _mixture_losses(grid, model_for, asked, longest)
        settings |= sums
    views = (*final_views(config), "deployed")
    nodes = grid.nodes.items()
    batch = [wire.evaluate(node, settings, model_for(client)) for node, client in nodes]
    by_client: dict[int | None, dict[str, Counts]] = {}
    tokens: dict[int | None, Tokens] = {}
    for reply in grid.send_and_receive(batch, timeout=timeout):
        metrics = wire.metrics_of(reply.content)
        # Under masks one missing client hides the numbers of all, and a result cannot do without.
        if keys.total_of("test") not in metrics:
            raise QuorumError(missing_numbers(len(batch)))
        by_client[client := grid.author(reply)] = {
            split: read_counts(metrics, split, views) for split in ("val", "test")
        }
        tokens[client] = read_tokens(metrics, wire.config_of(reply))
    return by_client, tokens, costs


def _mixture_losses(
    grid: FederationGrid,
    model_for: Callable[[int], ArrayRecord],
    config: Mapping[str, Any],
    timeout: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Ask every client to train its own models; return summed losses of mixtures, and the costs.

    The final evaluation tells every client these losses and their number of validation nodes. What
    a candidate gains over the first is `trimmed` by the gains of each client.
    """
    batch = [wire.evaluate(node, config, model_for(client)) for node, client in grid.nodes.items()]
    replies = grid.send_and_receive(batch, timeout=timeout)
    answers = [wire.metrics_of(reply.content) for reply in replies]
    total = sum_metrics(answers)
    if keys.LOSSES not in total:
        raise QuorumError(missing_numbers(len(batch)))
    nodes, (first, *rest) = int(total[keys.WEIGHT]), total[keys.LOSSES]
    own = [(each[keys.LOSSES], each[keys.WEIGHT]) for each in answers if each[keys.WEIGHT]]
    gains = zip(*([nodes * (x - of[0]) // n for x in of[1:]] for of, n in own), strict=True)
    pairs = zip(rest, gains, strict=True) if own else ()
    losses = [first, *(first + trimmed(loss - first, each) for loss, each in pairs)]
    sums = {keys.LOSSES: losses, keys.SCORED_NODES: nodes}
    moved = sum(len(array.data) for m in batch for array in wire.arrays_in(m).values())
    seconds = total[keys.seconds_of("train")]
    means = {"seconds_personal": seconds / len(batch), "bytes_personal": moved / len(batch)}
    return sums, means


def hashes(
    grid: FederationGrid,
    schemas: Sequence[wire.Schema],
    config: Mapping[str, Any],
    timeout: float,
    *,
    evidence: bool,
    own_data: bool,
) -> dict[str, dict[int, str]]:
    """Return the hashes of each client's data and evidence for the run's record.

    One message asks for the hash of the evidence, and tells clients with their own data the
    temperature of the run. A client that does not answer has no hash of its evidence.

    Parameters
    ----------
    schemas : of the clients of the run, ascending
    config : of the messages, with the temperature and the number of nodes it was fitted on
    evidence, own_data : whether the clients of the run keep evidence, and hold their own data
    """
    clients = zip(grid.clients, schemas, strict=True)
    # Why (decision 20): the record fixes what each client held, for `evidence verify`.
    by_client = {keys.DATA_SHA256: {client: schema.data_sha256 for client, schema in clients}}
    if evidence or own_data:
        batch = [wire.query(keys.SEAL, node, config) for node in grid.nodes]
        # `exchange` has no quorum: no absent client costs a finished run its result.
        sealed = [reply for reply in grid.exchange(batch, timeout) if not reply.has_error()]
        digests = {
            grid.client_of(reply): str(wire.config_of(reply)[keys.EVIDENCE_SHA256])
            for reply in sealed
        }
        by_client |= {keys.EVIDENCE_SHA256: digests} if evidence else {}
    return by_client


def score_record(result: Mapping[str, Any]) -> MetricRecord:
    """Return the scores of a result as Flower's record, without those that nobody knows."""
    names = {"test-accuracy": "test_accuracy", "test-macro-f1": "test_macro_f1"}
    scores = {name: result[key] for name, key in names.items() if result[key] is not None}
    return MetricRecord(scores)
