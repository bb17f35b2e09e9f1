"""Grids that know the clients of a run: fixed order, a quorum, traffic per client, masked sums."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.tree import RunConfig, quorum
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.declarations import MAX_NODES
from dance_flwr.federation.privacy.dp import fewest_clients, repeats_cost, update_bound
from dance_flwr.federation.secagg import masks
from dance_flwr.federation.secagg.server import MaskedSum, masked_sum, sum_format
from dance_flwr.federation.secagg.sums import SumOptions
from dance_flwr.federation.server.checks import ReplyChecks, total_fault
from dance_flwr.federation.server.polling import MessageLog, ask, is_lost, silence, timeout_of
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.federation.wire.serialization import bytes_of
from dance_flwr.federation.wire.tensors import array_of, arrays_of, state_of
from dance_flwr.methods.fixed_point import decode_update
from dance_flwr.methods.server_side import Answer, State
from dance_flwr.methods.upload_checks import statistics_fault

LOG = logging.getLogger("flwr")
POLL_NODES_SECONDS = 0.5
_MAX_RETRIES = 3  # in one round; a client may itself be what kills its process
Sizes = dict[str, dict[int | None, int]]  # name -> client -> count; None = the sum of all


def wait_for_nodes(
    grid: Grid, fewest: int, seconds: float, known: Collection[int] | None = None
) -> list[int]:
    """Return the connected nodes when there are enough of `known`, or of all, or time is over."""
    deadline = time.monotonic() + seconds
    while True:
        nodes = list(grid.get_node_ids())
        counted = nodes if known is None else [node for node in nodes if node in known]
        if len(counted) >= fewest or time.monotonic() > deadline:
            return nodes
        time.sleep(POLL_NODES_SECONDS)


class FederationGrid:
    """What of a Grid a strategy needs, with nodes and replies ordered by client, and a quorum.

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
    votes : of each client on the reading, or their sum under masks, after `sizes`
    answered : clients with a valid reply to the last batch
    absent : client -> why it has not taken part since the last `take_absent`
    bytes_down, bytes_up : model bytes by client since the last `take_traffic`
    checks : of every reply
    """

    def __init__(
        self, grid: Grid, client_of_node: Mapping[int, int], config: RunConfig, log: MessageLog
    ) -> None:
        self._grid, self._config, self.log = grid, config, log
        # Why (decision 1): node ids are random, and sums of floats depend on their order.
        self._client_of_node = dict(sorted(client_of_node.items(), key=lambda item: item[1]))
        self.checks = ReplyChecks(config)
        self.bytes_down, self.bytes_up = Counter[int](), Counter[int]()
        self.absent: dict[int, str] = {}
        self._left_out: dict[int, str] = {}
        self.votes: list[Sequence[int]] = []
        self.answered = self.total_weight = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the connected nodes of clients, ordered by client.

        Waits up to `node-timeout` seconds for the quorum, so that a node can restart. Flower's own
        sampling would wait forever.
        """
        fewest, known = fewest_clients(self._config), self._client_of_node
        seconds = self._config.node_timeout
        connected = {*wait_for_nodes(self._grid, fewest, seconds, known)}
        absent = [client for node, client in known.items() if node not in connected]
        nodes = [node for node in known if node in connected]
        if len(nodes) < fewest:
            raise QuorumError(
                f"expected at least {fewest} of {len(known)} SuperNodes connected within "
                f"{seconds:g} s, found {len(nodes)}; start those of clients {absent}"
            )
        for client in absent:
            self.mark_absent("client_silent", client, "its SuperNode is not connected")
        return nodes

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, wait, and return the valid replies ordered by client.

        Clients that lost their connection and are back are asked again while fewer replies than
        the quorum are valid; without `min-valid-replies`, while any is missing.
        """
        sent, start = list(messages), time.monotonic()
        expected = self.quorum(len(sent))
        # The default quorum lets a run go on; it is not a reason to exclude a node that is back.
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
            reasons = [
                f"client {self.client_of(reply)}: {str(reply.error.reason).strip()}"
                for reply in replies
                if reply.has_error()
            ]
            reasons += [f"client {c}: {silence(timeout)}" for c in self._silent(sent, replies)]
            raise QuorumError(
                f"expected at least {expected} valid replies, found {len(valid)}; "
                f"{'; '.join(sorted(reasons))}"
            )
        return valid

    def exchange(self, sent: list[Message], timeout: float | None) -> list[Message]:
        """Send, wait, and return every reply ordered by client, errors included.

        A reply that breaks the rules of its task is an error. Counts bytes.
        """
        if not sent:
            return []
        for message in sent:
            client = self._client_of_node[message.metadata.dst_node_id]
            self.bytes_down[client] += bytes_of(message)
        replies = ask(self._grid, sent, timeout, self.log, self.checks.fault)
        replies = self.checks.alike(sent[0], sorted(replies, key=self.client_of))
        for reply in replies:
            client = self.client_of(reply)
            self.bytes_up[client] += bytes_of(reply)
            if reply.has_error():
                invalid = reply.error.code == keys.INVALID_REPLY
                event = "upload_rejected" if invalid else "client_failed"
                self.mark_absent(event, client, str(reply.error.reason))
        for client in self._silent(sent, replies):
            self.mark_absent("client_silent", client, silence(timeout))
        return replies

    def take_traffic(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return model bytes (down, up) by client and start again from zero."""
        taken = dict(sorted(self.bytes_down.items())), dict(sorted(self.bytes_up.items()))
        self.bytes_down, self.bytes_up = Counter(), Counter()
        return taken

    def mark_absent(self, event: str, client: int, reason: str) -> None:
        """Record, once per round, that a client does not take part, and emit an event."""
        if client in self.absent:
            return
        self.absent[client] = one_line = " ".join(reason.split())
        # People read Flower's log, programs the events; `leave_out` has a line of its own.
        if event != "client_left_out":
            LOG.error("client %d takes no part in this round: %s", client, one_line)
        line = f"client {client}: {one_line}"
        events.emit(event, line, logging.WARNING, client=client, reason=one_line)

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
        """Return how many valid replies from this many clients are enough."""
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
        """Continue an interrupted run: what `sizes` returned, and the weight of all."""
        self.total_weight = total_weight

    def author(self, reply: Message) -> int | None:
        """Return the client whose numbers a reply holds; None = all clients together."""
        return self.client_of(reply)

    def sizes(
        self, past: Sizes, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> Sizes:
        """Return nodes and encoded tokens per client, as far as the server may know them.

        Parameters
        ----------
        past : what earlier starts of the run returned; clients that are absent now are in it
        """
        described = dict(zip(self.clients, schemas, strict=True))
        self.votes = [schema.reading_votes for schema in schemas]
        for client, schema in described.items():
            LOG.info("client %d: %d nodes on %s", client, schema.num_nodes, schema.device)
        counted = {
            "nodes_per_client": {c: schema.num_nodes for c, schema in described.items()},
            "encoder_tokens": {c: schema.encoder_tokens for c, schema in described.items()},
        }
        return {
            name: dict(sorted((past.get(name, {}) | counts).items(), key=lambda item: item[0] or 0))
            for name, counts in counted.items()
        }

    def _silent(self, sent: Sequence[Message], replies: Sequence[Message]) -> list[int]:
        answered = {reply.metadata.src_node_id for reply in replies}
        asked = dict.fromkeys(message.metadata.dst_node_id for message in sent)
        return [self._client_of_node[node] for node in asked if node not in answered]

    def _retries(self, sent: Sequence[Message], replies: Sequence[Message]) -> list[Message]:
        """Wait for the nodes that Flower gave up; return new messages to those that are back."""
        lost = {reply.metadata.src_node_id for reply in replies if is_lost(reply)}
        # Why (decision 10): noise is not drawn twice.
        if not lost or repeats_cost(self._config.privacy):
            return []
        back = lost.intersection(self.get_node_ids())
        return [
            Message(
                message.content,
                node,
                message.metadata.message_type,
                group_id=message.metadata.group_id,
            )
            for message in sent
            if (node := message.metadata.dst_node_id) in back
        ]


class GridChannel:
    """Connect a server side to the clients of a Grid: a `methods.server_side.Channel`."""

    def __init__(self, grid: FederationGrid, config: RunConfig, common: Mapping[str, Any]) -> None:
        self._grid, self._config = grid, config
        in_all = (keys.RUN, keys.PARTITION_DIR, keys.TEXT_POOLING, keys.EDGE_GATES)
        self._common = {key: common[key] for key in in_all if key in common}

    @cached_property
    def _nodes(self) -> dict[int, int]:
        # Cached: all steps of an exchange are between the clients that were there at its start.
        return {self._grid.nodes[node]: node for node in self._grid.get_node_ids()}

    @property
    def clients(self) -> Sequence[int]:
        """The connected clients, ascending."""
        return list(self._nodes)

    def exchange(
        self,
        step: int,
        inboxes: Mapping[int, Mapping[str, Any]],
        check: Callable[[int, State], str],
    ) -> Iterator[Answer]:
        """Run one step; yield the valid answers one at a time, in the order of clients."""
        batch = []
        for client, inbox in inboxes.items():
            # Arrays that are forwarded unread keep their bytes.
            tensors = {n: v if isinstance(v, Array) else array_of(v) for n, v in inbox.items()}
            settings = ConfigRecord({**self._common, keys.STEP: step})
            content = RecordDict({keys.CONFIG: settings, keys.EXCHANGED: ArrayRecord(tensors)})
            batch.append(Message(content, self._nodes[client], keys.EXCHANGE))
        replies = self._grid.send_and_receive(batch, timeout=timeout_of(self._config))
        valid = 0
        for reply in replies:
            client, packed = self._grid.client_of(reply), wire.exchange_record(reply)
            state = state_of(packed)
            # Values that are not finite, or huge, are refused first; the method's own rules follow.
            if fault := statistics_fault(state, list(state)) or check(client, state):
                self._grid.mark_absent("upload_rejected", client, fault)
                continue
            valid += 1
            yield Answer(client, packed, state)
        # As in a round: a mean over fewer clients is another result, and is not made silently.
        if valid < (fewest := min(len(replies), fewest_clients(self._config))):
            raise QuorumError(
                f"expected at least {fewest} valid answers in an exchange, found {valid}; "
                "the log says what was wrong with the others"
            )


class SecureGrid(FederationGrid):
    """A FederationGrid that sums the replies to TRAIN and EVALUATE under masks.

    A strategy receives one reply for all clients: the weighted mean of their models and the sum of
    their metrics. Any strategy that needs means only works unchanged; `check_method` refuses the
    others.
    """

    def __init__(
        self, grid: Grid, client_of_node: Mapping[int, int], config: RunConfig, log: MessageLog
    ) -> None:
        super().__init__(grid, client_of_node, config, log)
        # Before the first message: server and clients must use the same masks.
        masks.install()
        self._nodes = MAX_NODES  # of all clients

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, sum under masks, and return one reply for all clients; queries pass unchanged."""
        sent = list(messages)
        kind = sent[0].metadata.message_type if sent else ""
        if kind not in (keys.TRAIN, keys.EVALUATE):
            return super().send_and_receive(sent, timeout=timeout)
        return [self._sum(sent, kind, timeout)]

    def author(self, reply: Message) -> int | None:
        """Return None: a reply holds the sum over all clients."""
        return None

    def sizes(
        self, past: Sizes, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> Sizes:
        """Ask for weight, nodes, tokens and votes under masks, once in a run; return the sums."""
        # Once, as the difference of two sums over different clients is a client's size.
        if past:
            return past
        batch = [wire.query(keys.TRAIN, node, config) for node in self._client_of_node]
        total = wire.metrics_of(self._sum(batch, keys.WEIGH, timeout).content)
        if keys.NODES not in total:
            raise QuorumError(missing_numbers(len(batch)))
        self.total_weight, self._nodes = int(total[keys.WEIGHT]), int(total[keys.NODES])
        self.votes = [total.get(keys.READING_VOTES, [])]
        LOG.info(
            "%d clients under secure aggregation: %d nodes in all", len(schemas), total[keys.NODES]
        )
        return {
            "nodes_per_client": {None: total[keys.NODES]},
            "encoder_tokens": {None: total[keys.ENCODER_TOKENS]},
        }

    def restore(self, sizes: Sizes, total_weight: int) -> None:
        """Continue a run; its masked counts are bounded by the nodes of all clients as before."""
        super().restore(sizes, total_weight)
        self._nodes = sizes["nodes_per_client"][None]

    def _sum(self, sent: Sequence[Message], task: str, timeout: float | None) -> Message:
        privacy = self._config.privacy
        norm = float(wire.config_of(sent[0]).get(keys.CLIPPING_NORM, privacy.clipping_norm))
        bound = update_bound(self._config, norm)
        # Levels for all that are asked: the sum of fewer fits as well.
        form = sum_format(len(sent), self._config.upload_precision)
        options = SumOptions(task, self.total_weight, bound, form)
        exchange = partial(self._exchange_stage, timeout=timeout)
        total = masked_sum(sent, options, self._config, self._grid.run.run_id, exchange)
        self.answered = total.clients
        # Nobody knows the weight of a client that dropped out: it counts as one of mean weight.
        present = total.clients / len(self._client_of_node)
        start = wire.model_of(sent[0]) if task == keys.TRAIN else {}
        size = sum(tensor.numel() for tensor in start.values())
        # No honest sum is beyond this (`secagg.sums`), and one that is would become the model.
        most = form.levels // 2 + len(sent)
        if size and (found := int(np.abs(total.numbers[:size]).max())) > most:
            raise UserError(_untrue(f"expected updates of at most {most} steps, found {found}"))
        metrics = self._metrics(total, size, options)
        # The weight of a part of the clients is an estimate, wrong where they have none. An update
        # of zeros is theirs, or leaves the model as it is all the same. Never under differential
        # privacy: the noise of a round is not left out.
        if size and privacy.dp == "none" and not total.numbers[:size].any():
            metrics[keys.WEIGHT] = 0
        records: dict[str, Any] = {keys.METRICS: MetricRecord(metrics)}
        if start:
            mean = total.numbers[:size].astype(np.float64) * (2 / form.levels)
            records[keys.ARRAYS] = arrays_of(decode_update(mean, start, present, bound))
        return Message(RecordDict(records), reply_to=sent[0])

    def _metrics(self, total: MaskedSum, start: int, options: SumOptions) -> dict[str, Any]:
        """Return the summed metrics, or the weight alone where a client is missing."""
        clients = len(self._client_of_node)
        # Why (docs/privacy.md): the pads of a missing client stay in the numbers, which are then
        # uniform.
        if total.clients < clients or total.omitted:
            LOG.warning("%d of %d clients in a sum: numbers are hidden", total.clients, clients)
            return {keys.WEIGHT: round(self.total_weight * (total.clients / clients))}
        metrics = total.metrics(start, options.form)
        # Bounded by all clients together, as single numbers are hidden.
        bounds = self.total_weight, self._nodes
        if fault := total_fault(metrics, options.task, self._config, *bounds):
            raise UserError(_untrue(fault))
        if keys.LOSS in metrics:
            metrics[keys.LOSS] /= metrics[keys.WEIGHT]
        return metrics

    def _exchange_stage(self, sent: list[Message], timeout: float | None) -> list[Message]:
        """Return every reply of a stage; errors name their client, as one line lists them all."""
        return [
            wire.with_error(
                reply,
                reply.error.code,
                f"client {self.client_of(reply)}: {str(reply.error.reason).strip()}",
            )
            if reply.has_error()
            else reply
            # Why (decision 10): neither quorum nor retries, as the threshold decides, and shares
            # name who took part.
            for reply in self.exchange(sent, timeout)
        ]


def _untrue(fault: str) -> str:
    return (
        f"secure aggregation: {fault}: a client is broken or lies, and under masks nobody sees "
        "which; find it by a round without privacy.secure-aggregation, and resume without it"
    )


def missing_numbers(clients: int) -> str:
    """Return the error of a run that cannot go on without the numbers of all clients."""
    return (
        f"secure aggregation: expected the numbers of all {clients} clients in one sum, found that "
        "one was absent, or that peer-keys or an earlier sum of a node name other clients; start "
        "the absent ones and resume the run, or read a node's log and docs/privacy.md, "
        "Differences of sums"
    )
