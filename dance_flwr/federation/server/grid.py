"""A Grid that knows its clients: fixed order, a quorum, and traffic per client."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.errors import QuorumError
from dance_flwr.federation.flower import Run
from dance_flwr.federation.privacy.dp import fewest_clients, repeats_cost
from dance_flwr.federation.server.deadline import silence
from dance_flwr.federation.server.message_log import MessageLog, Traffic
from dance_flwr.federation.server.polling import ask, is_lost
from dance_flwr.federation.server.reading import summed_votes
from dance_flwr.federation.server.reply_checks import ReplyChecks
from dance_flwr.federation.server.sizes import Sizes, merged_sizes
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.federation.wire.serialization import bytes_of

LOG = logging.getLogger("flwr")
POLL_NODES_SECONDS = 0.5
_MAX_RETRIES = 3  # in one round; a client may itself be what kills its process


class FederationGrid(Grid):
    """Wrap the Grid of a run, order nodes and replies by client, and enforce a quorum.

    A round with fewer valid replies raises instead of continuing with the old model.

    Parameters
    ----------
    grid : the Grid of the run
    client_of_node : node id -> client number, from the answers to HELLO
    config : of the run; `min-valid-replies` is the quorum of any batch of messages
    log : records every message

    Attributes
    ----------
    total_weight : of all clients, used under secure aggregation only
    votes : sum of the clients' votes on the reading, after `sizes`; empty if there was none
    answered : clients with a valid reply to the last batch
    absent : client -> why it has not taken part since the last `take_absent`
    checks : of every reply
    """

    def __init__(
        self, grid: Grid, client_of_node: Mapping[int, int], config: RunConfig, log: MessageLog
    ) -> None:
        self._grid = grid
        # Why (decision 1): node ids are random, and sums of floats depend on their order.
        self._client_of_node = dict(sorted(client_of_node.items(), key=lambda item: item[1]))
        self._config = config
        self.traffic = Traffic()
        self.total_weight = 0
        self.absent: dict[int, str] = {}
        self._left_out: dict[int, str] = {}
        self.log = log
        self.checks = ReplyChecks(config)
        self.votes: list[int] = []
        self.answered = 0

    def set_run(self, run: Run) -> None:
        """Delegate to the wrapped Grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the wrapped Grid."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Delegate to the wrapped Grid."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the connected nodes of clients, ordered by client.

        Waits up to `node-timeout` seconds for the quorum, so that a node can restart. Flower's own
        sampling would wait forever.
        """
        fewest = fewest_clients(self._config)
        deadline = time.monotonic() + self._config.node_timeout
        while True:
            connected = set(self._grid.get_node_ids())
            nodes = [node for node in self._client_of_node if node in connected]
            if len(nodes) >= fewest:
                for node, client in self._client_of_node.items():
                    if node not in connected:
                        self.mark_absent("client_silent", client, "its SuperNode is not connected")
                return nodes
            if time.monotonic() > deadline:
                absent = [
                    client for node, client in self._client_of_node.items() if node not in connected
                ]
                raise QuorumError(
                    f"expected at least {fewest} of {len(self._client_of_node)} SuperNodes "
                    f"connected within {self._config.node_timeout:g} s, found {len(nodes)}; start "
                    f"those of clients {absent}"
                )
            time.sleep(POLL_NODES_SECONDS)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Delegate to the wrapped Grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Delegate to the wrapped Grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, wait, and return the valid replies ordered by client.

        Below the quorum, or all where `min-valid-replies` names none, clients that lost their
        connection are asked again if they are back.
        """
        sent, start = list(messages), time.monotonic()
        expected = self.quorum(len(sent))
        # The default quorum lets a run go on; it is no reason to do without a node that is back.
        wanted = expected if self._config.min_valid_replies else len(sent)
        replies = self.exchange(sent, timeout)
        # Why (decision 10): an outage of a minute does not end a run.
        for _ in range(_MAX_RETRIES):
            if sum(not reply.has_error() for reply in replies) >= wanted or not (
                again := self._retries(sent, replies)
            ):
                break
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - start))
            nodes = {message.metadata.dst_node_id for message in again}
            replies = [reply for reply in replies if reply.metadata.src_node_id not in nodes]
            for node in nodes:
                self.absent.pop(self._client_of_node[node], None)
            replies = sorted(replies + self.exchange(again, left), key=self.client_of)
        valid = [reply for reply in replies if not reply.has_error()]
        self.answered = len(valid)
        if len(valid) < expected:
            raise QuorumError(self._shortfall(sent, replies, expected, timeout))
        return valid

    def exchange(self, sent: list[Message], timeout: float | None) -> list[Message]:
        """Send, wait, and return every reply ordered by client, errors included.

        A reply that breaks the rules of its task is an error. Counts bytes.
        """
        if not sent:
            return []
        self._count(self.traffic.down, sent, lambda m: m.metadata.dst_node_id)
        replies = ask(self._grid, sent, timeout, self.log, self.checks.fault)
        replies = self.checks.alike(sent[0], sorted(replies, key=self.client_of))
        self._count(self.traffic.up, replies, lambda m: m.metadata.src_node_id)
        self._note_absent(sent, replies, timeout)
        return replies

    def mark_absent(self, event: str, client: int, reason: str) -> None:
        """Record, once per round, that a client does not take part, and emit an event."""
        if client not in self.absent:
            self.absent[client] = one_line = " ".join(reason.split())
            # People read Flower's log, programs the events. Other events have lines of their own.
            if event in ("client_failed", "client_silent"):
                LOG.error("client %d takes no part in this round: %s", client, one_line)
            events.emit(
                event,
                f"client {client}: {one_line}",
                logging.WARNING,
                client=client,
                reason=one_line,
            )

    def take_absent(self) -> dict[int, str]:
        """Return and clear the clients that have not taken part since the last call, and why.

        Those that were left out at the start of the run are among them every time.
        """
        absent, self.absent = dict(sorted((self._left_out | self.absent).items())), {}
        return absent

    def leave_out(self, client: int, reason: str) -> None:
        """Record that a client takes no part in this start of the run, and emit an event."""
        LOG.error("client %d takes no part in this run: %s", client, reason)
        self.mark_absent("client_left_out", client, reason)
        self._left_out[client] = self.absent[client]

    def client_of(self, reply: Message) -> int:
        """Return the number of the client that sent this reply."""
        return self._client_of_node[reply.metadata.src_node_id]

    def quorum(self, clients: int) -> int:
        """Return how many valid replies are enough of so many clients."""
        return quorum(self._config, clients)

    @property
    def nodes(self) -> Mapping[int, int]:
        """Node -> client of those that take part, ordered by client."""
        return self._client_of_node

    @property
    def clients(self) -> list[int]:
        """The clients that take part, ascending."""
        return list(self._client_of_node.values())

    def keep(self, schemas: Mapping[int, wire.Schema]) -> None:
        """Go on with these clients alone, and bound their replies by what they described."""
        nodes = {n: client for n, client in self._client_of_node.items() if client in schemas}
        self._client_of_node = nodes
        self.checks.learn({node: schemas[client] for node, client in nodes.items()})

    def restore(self, sizes: Sizes, total_weight: int) -> None:
        """Take up a run that was interrupted: what `sizes` returned, and the weight of all."""
        self.total_weight = total_weight

    def author(self, reply: Message) -> int | None:
        """Return the client whose numbers a reply holds; None = all clients together."""
        return self.client_of(reply)

    def sizes(
        self, past: Sizes, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> Sizes:
        """Return nodes and encoded tokens per client, as far as the server may know them."""
        described = dict(zip(self.clients, schemas, strict=True))
        self.votes = summed_votes(schema.reading_votes for schema in schemas)
        for client, schema in described.items():
            LOG.info("client %d: %d nodes on %s", client, schema.num_nodes, schema.device)
        return merged_sizes(past, described)

    def _count(self, totals: dict[int, int], batch: list[Message], node_of: Any) -> None:
        for message in batch:
            client = self._client_of_node[node_of(message)]
            totals[client] = totals.get(client, 0) + bytes_of(message)

    def _note_absent(
        self, sent: list[Message], replies: list[Message], timeout: float | None
    ) -> None:
        for reply in replies:
            if reply.has_error():
                client, reason = self.client_of(reply), str(reply.error.reason)
                invalid = reply.error.code == keys.INVALID_REPLY
                if invalid:
                    LOG.error("refused the reply of client %d: %s", client, reason)
                event = "upload_rejected" if invalid else "client_failed"
                self.mark_absent(event, client, reason)
        answered = {reply.metadata.src_node_id for reply in replies}
        for node in {message.metadata.dst_node_id for message in sent} - answered:
            self.mark_absent("client_silent", self._client_of_node[node], silence(timeout))

    def _retries(self, sent: Sequence[Message], replies: Sequence[Message]) -> list[Message]:
        """Wait for the nodes that Flower gave up; return new messages to those that are back."""
        lost = {reply.metadata.src_node_id for reply in replies if is_lost(reply)}
        # Why (decision 10): noise is not drawn twice.
        if not lost or repeats_cost(self._config.privacy):
            return []
        back = lost.intersection(self.get_node_ids())
        whole = [
            (message.content, message.metadata)
            for message in sent
            if message.metadata.dst_node_id in back
        ]
        return [self.create_message(c, m.message_type, m.dst_node_id, m.group_id) for c, m in whole]

    def _shortfall(
        self, sent: list[Message], replies: list[Message], expected: int, timeout: float | None
    ) -> str:
        failed = {
            r.metadata.src_node_id: str(r.error.reason).strip() for r in replies if r.has_error()
        }
        answered = {r.metadata.src_node_id for r in replies}
        silent = {m.metadata.dst_node_id for m in sent} - answered
        reasons = [
            f"client {self._client_of_node[node]}: {reason}" for node, reason in failed.items()
        ]
        reasons += [f"client {self._client_of_node[node]}: {silence(timeout)}" for node in silent]
        valid = len(replies) - len(failed)
        failures = "; ".join(sorted(reasons))
        return f"expected at least {expected} valid replies, found {valid}; {failures}"
