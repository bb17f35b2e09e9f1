"""Send messages and poll for their replies: often at first, and each on its own over a network.

`MessageLog` records what passes: kinds, keys, counts and bytes.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid

from dance_flwr.config.sections import FederationConfig
from dance_flwr.errors import UserError
from dance_flwr.escaping import one_line
from dance_flwr.federation import flower
from dance_flwr.federation.flower import DecodeError, ErrorCode
from dance_flwr.federation.secagg.sums import kind_of
from dance_flwr.federation.wire.keys import DOWN, HELLO, INVALID_REPLY, UP
from dance_flwr.federation.wire.messages import keys_in, query, record_digest
from dance_flwr.federation.wire.serialization import bytes_of, pack, unpack

LOG = logging.getLogger("flwr")
# Why (decision 10): Flower's Grid sleeps three seconds between polls; most stages are shorter.
_FASTEST_POLL_SECONDS, _SLOWEST_POLL_SECONDS = 0.05, 1.0
_FASTEST_APART_SECONDS = 0.25  # a node polls as often, and each poll is a request
_SILENCE_SECONDS = 30.0  # without any reply, before silent nodes are asked whether they are alive
_GRACE_SECONDS = 10.0  # for a reply that is in transit when its node has answered a later message
# Why: a SuperLink under load gives up an upload of arrays. Flower stores a message by its hash, so
# one that is pushed again is the same message.
_PUSH_AGAIN_SECONDS = (1.0, 5.0, 15.0)
_MAX_REASON = 1000  # characters of a client's error
# Why (decision 10): a node of these errors is asked again once it is back.
_GONE = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED}
_FORGOTTEN = Error(
    ErrorCode.NODE_UNAVAILABLE, "its SuperNode was started again, or is gone, while it was at work"
)
# Why (decision 10): no number of seconds suits a graph of 100 nodes and one of a million, but the
# clients of a run have similar tasks. Ten times the time of most is enough for a client without a
# GPU among others with one; five minutes are enough for a node that restarts.
ADAPTIVE = inf
_FACTOR, _SHORTEST_SECONDS, _LONGEST_SECONDS = 10.0, 300.0, 3600.0

Check = Callable[[Message, Message], str]  # (request, reply) -> the error in it, or ""


class MessageLog:
    """Totals over all messages of one kind, in the order of their first messages.

    A row has the type of a message, its stage of a masked sum or "" (`kind_of`), the way,
    the keys that occurred by record, and the numbers of messages, of errors among them, and of
    bytes.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._asked: dict[int | None, tuple[str, str]] = {}
        # Node -> kind -> [answers, bytes]; None once an earlier start is continued, as a checkpoint
        # does not have them.
        self._answers: dict[int, dict[tuple[str, str], list[int]]] | None = {}

    def add(self, batch: Iterable[Message], way: str) -> None:
        """Record messages that were sent (DOWN) or received (UP)."""
        for message in batch:
            kind, stage = self._kind(message, way)
            new = {"type": kind, "stage": stage, "way": way, "keys": dict[str, list[str]]()}
            row = self._rows.setdefault(
                (kind, stage, way), new | {"count": 0, "errors": 0, "bytes": 0}
            )
            # Counts alone, and no values: the log is part of every result (docs/privacy.md).
            row["count"] += 1
            row["errors"] += message.has_error()
            row["bytes"] += bytes_of(message)
            if way == UP and self._answers is not None and not message.has_error():
                node = self._answers.setdefault(message.metadata.src_node_id, {})
                total = node.setdefault((kind, stage), [0, 0])
                total[0], total[1] = total[0] + 1, total[1] + bytes_of(message)
            for name, found in keys_in(message).items():
                row["keys"][name] = sorted({*found, *row["keys"].get(name, ())})

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return [row | {"keys": dict(row["keys"])} for row in self._rows.values()]

    def digests(self) -> dict[int, str]:
        """Return node -> `record_digest` of its answers; none where an earlier start is continued.

        A node of an own record can say whether it names the same answers.
        """
        return {node: record_digest(kinds) for node, kinds in (self._answers or {}).items()}

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace all rows by these, of an earlier start."""
        self._answers = None
        self._rows = {(row["type"], row["stage"], row["way"]): dict(row) for row in rows}

    def _kind(self, message: Message, way: str) -> tuple[str, str]:
        if way == DOWN:
            kind = self._asked[message.metadata.dst_node_id] = kind_of(message)
            return kind
        # A reply belongs to the last stage asked of its node.
        kind = self._asked.get(message.metadata.src_node_id, ("", ""))
        return kind if kind[1] else (message.metadata.message_type, "")


def timeout_of(config: FederationConfig) -> float:
    """Return `round-timeout` in seconds, `ADAPTIVE` where it is 0."""
    return config.round_timeout or ADAPTIVE


def silence(timeout: float | None) -> str:
    """Return why a client without a reply is absent."""
    if timeout == ADAPTIVE:
        return "no reply in ten times the time of most clients"
    return f"no reply within {timeout} s"


class Deadline:
    """The end of a batch of messages, after a fixed time or depending on the first replies.

    `ADAPTIVE` is an hour; once more than half of the clients have replied, it is ten times as long
    as they took, but at least five minutes.

    Parameters
    ----------
    timeout : seconds, `ADAPTIVE`, or None to wait for all
    asked : messages of the batch
    """

    def __init__(self, timeout: float | None, asked: int) -> None:
        self._begin, self._majority = time.monotonic(), asked // 2 + 1
        self._adaptive = timeout == ADAPTIVE
        self._limit = inf if timeout is None else timeout
        if self._adaptive:
            self._limit = _LONGEST_SECONDS

    def note(self, replies: int) -> None:
        """Record the number of replies so far."""
        if self._adaptive and replies >= self._majority:
            usual = _FACTOR * (time.monotonic() - self._begin)
            self._limit = min(self._limit, max(_SHORTEST_SECONDS, usual))
            self._adaptive = False

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._begin + self._limit - time.monotonic())


def is_lost(reply: Message) -> bool:
    """Whether the node or its ClientApp's process is gone, rather than its task failed.

    Excludes dead Ray workers, as the message itself may kill them.
    """
    return reply.has_error() and reply.error.code in _GONE


def ask(
    grid: Grid,
    sent: Sequence[Message],
    timeout: float | None,
    log: MessageLog,
    check: Check = lambda request, reply: "",
) -> list[Message]:
    """Send messages and return the replies that arrive in time, at most one per message.

    Everything that a client sends passes here; a reply in which `check` finds an error is replaced
    by that error. Flower's own Grid polls every three seconds, which is most of a short round. This
    function polls often at first, later once a second. It packs tensors for the transport and
    records every message in the log.

    Parameters
    ----------
    timeout : as of `Deadline`
    """
    # Why (decision 10): Flower sends each array in requests of its own. A grid in this process says
    # that its messages cross no wire.
    pushed = pack(sent) if getattr(grid, "crosses_a_wire", True) else sent
    pending = dict(zip(_push(grid, pushed), pushed, strict=True))
    questions, answers = list[Message](), list[Message]()  # to silent nodes
    # Over a network one broken reply would hold up all others of its call.
    if _asks_over_http(grid):
        found, questions, answers = _collect_apart(grid, pending, timeout)
    else:
        found = _collect(grid, pending, timeout)
    # By request: an answer that comes twice counts once.
    by_request = {reply.metadata.reply_to_message_id: reply for reply in found}
    replies = [
        # Unpacked first: rules are about tensors, and a record that cannot be read becomes empty.
        _checked(pending[key], unpack(reply), check)
        for key, reply in by_request.items()
        if key in pending
    ]
    answers = [a for a in answers if a.has_error() or not check(questions[0], a)]
    for batch, way in ((sent, DOWN), (replies, UP), (questions, DOWN), (answers, UP)):
        log.add(batch, way)
    return replies


def _push(grid: Grid, messages: Sequence[Message]) -> list[str]:
    """Push messages; try again if the SuperLink gave up the upload of their arrays."""
    for pause in (*_PUSH_AGAIN_SECONDS, None):
        try:
            return list(grid.push_messages(messages))
        except Exception as error:
            # Looked up here: a Grid that raises it has loaded its module.
            if not isinstance(error, flower.ObjectPushError):
                raise
            if pause is None:
                raise UserError(
                    f"expected the SuperLink to store {len(messages)} messages, found that it gave "
                    f"up their upload {len(_PUSH_AGAIN_SECONDS) + 1} times; it is overloaded, its "
                    "disk is full, or it was started again: look at its log, and resume the run"
                ) from error
            LOG.warning("the SuperLink gave up an upload; again in %g s", pause)
            time.sleep(pause)
    raise AssertionError  # the last try returns or raises


def _asks_over_http(grid: Grid) -> bool:
    """Whether this is Flower's Grid of a deployment, whose module takes a second to import."""
    return flower.PRIVATE["HttpGrid"].partition(":")[0] in sys.modules and isinstance(
        grid, flower.HttpGrid
    )


def _collect(grid: Grid, pending: Mapping[str, Message], timeout: float | None) -> list[Message]:
    waiting, replies, begin = set(pending), list[Message](), time.monotonic()
    deadline = Deadline(timeout, len(pending))
    while True:
        arrived = list(grid.pull_messages(waiting))
        replies += arrived
        waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
        deadline.note(len(replies))
        if len(replies) >= len(pending) or not deadline.left():
            return replies
        time.sleep(_pause(time.monotonic() - begin))


def _collect_apart(
    grid: Grid, pending: Mapping[str, Message], timeout: float | None
) -> tuple[list[Message], list[Message], list[Message]]:
    """Poll for the reply to each message in its own thread; return also HELLOs and their answers.

    A node that dies while it sends leaves an announced reply whose parts never arrive. Flower waits
    three minutes for them, beyond any timeout, and blocks all other replies of the same call. It
    gives up neither that node nor one that reconnects before the next poll. Silent nodes are sent
    HELLO: as a SuperNode handles the oldest message first, its answer, or Flower's error that the
    node is gone, shows that the older message was lost.
    """
    deadline, heard_at = Deadline(timeout, len(pending)), time.monotonic()
    watcher = _ReplyWatcher(grid)
    replies: dict[str, Message] = {}
    greeted: dict[str, str] = {}
    lost_at: dict[str, float] = {}
    questions, answers = list[Message](), list[Message]()
    try:
        for key, message in pending.items():
            watcher.watch(key, message)
        while len(replies) < len(pending) and (left := deadline.left()):
            reply, now = watcher.next(min(left, _SLOWEST_POLL_SECONDS)), time.monotonic()
            key = reply.metadata.reply_to_message_id if reply else ""
            if reply and key in greeted:
                answers.append(reply)
                # Why (decision 10): the earlier message was lost, unless its reply is on the way.
                lost_at[greeted[key]] = now + _GRACE_SECONDS
            elif reply:
                replies[key], heard_at = reply, now
                deadline.note(len(replies))
            for key, at in lost_at.items():
                if key not in replies and now >= at:
                    replies[key] = Message(_FORGOTTEN, reply_to=pending[key])
            # Why (decision 10): one greeting per node, as it costs a fork.
            if not questions and now >= heard_at + _SILENCE_SECONDS:
                silent = [key for key in pending if key not in replies]
                questions = [query(HELLO, pending[key].metadata.dst_node_id, {}) for key in silent]
                greeted = dict(zip(_push(grid, questions), silent, strict=True))
                for key, question in zip(greeted, questions, strict=True):
                    watcher.watch(key, question)
    finally:
        watcher.end()
    return list(replies.values()), questions, answers


class _ReplyWatcher:
    """Poll for each reply in its own thread, until it arrives or `end` is called."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._replies, self._over = grid, Queue[Message | Exception](), Event()

    def watch(self, key: str, request: Message) -> None:
        # A daemon: a poll that hangs must not keep the server from ending.
        Thread(target=self._poll, args=(key, request), daemon=True).start()

    def next(self, seconds: float) -> Message | None:
        """Return the next reply, None after the timeout; raise the error of a broken connection."""
        try:
            reply = self._replies.get(timeout=max(0.0, seconds))
        except Empty:
            return None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def end(self) -> None:
        self._over.set()

    def _poll(self, key: str, request: Message) -> None:
        begin = time.monotonic()
        try:
            while not self._over.is_set():
                for reply in self._grid.pull_messages([key]):
                    self._replies.put(reply)
                    return
                self._over.wait(_pause(time.monotonic() - begin, _FASTEST_APART_SECONDS))
        except Exception as error:
            # An error of the connection is raised in `next`; unreadable bytes are an answer.
            self._replies.put(_unreadable(error, request) or error)


def _unreadable(error: Exception, request: Message) -> Message | None:
    """Return an error in place of a reply that cannot be read; None if the connection broke."""
    kinds = (DecodeError, ValueError, LookupError, TypeError, AttributeError)
    if not isinstance(error, kinds) or isinstance(error.__cause__, DecodeError):
        return None  # of an unreadable response of the SuperLink
    reason = f"{type(error).__name__}: {error}"[:_MAX_REASON]
    fault = f"expected a reply that can be read, found {reason}"
    return Message(Error(INVALID_REPLY, fault), reply_to=request)


def _pause(elapsed: float, fastest: float = _FASTEST_POLL_SECONDS) -> float:
    # A tenth of the time so far: short stages end at once, long ones cost few requests.
    return min(_SLOWEST_POLL_SECONDS, max(fastest, elapsed / 10))


def _checked(request: Message, reply: Message, check: Check) -> Message:
    """Return the reply to a request, or an error of bounded length in its place."""
    if reply.has_error():
        # Untrusted text: escaped and cut before any log or result holds it.
        reason = one_line(str(reply.error.reason or "an error without a reason"))
        if len(reason) > _MAX_REASON:
            reason = f"{reason[:_MAX_REASON]} ... ({len(reason)} characters)"
        return Message(Error(reply.error.code, reason), reply_to=request)
    # No node answers for another; only the SuperLink does, with an error.
    stranger = reply.metadata.src_node_id != request.metadata.dst_node_id
    fault = "expected a reply of the node that was asked" if stranger else check(request, reply)
    return Message(Error(INVALID_REPLY, fault), reply_to=request) if fault else reply
