"""Messages out, replies in: looked for often, each for itself over a network, and each of the node
that was asked.
"""

import time
from collections.abc import Mapping, Sequence
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple

from flwr.app import Error, Message
from flwr.serverapp import Grid

from dance_flwr.federation.flower import ErrorCode, HttpGrid
from dance_flwr.federation.server.ledger import DOWN, UP, Ledger
from dance_flwr.federation.wire.keys import HELLO
from dance_flwr.federation.wire.messages import query
from dance_flwr.federation.wire.serialization import packed, unpacked

_FASTEST_POLL_SECONDS, _SLOWEST_POLL_SECONDS = 0.05, 1.0
_FASTEST_APART_SECONDS = (
    0.5  # a node looks for messages every three seconds, and each look is a request
)
_SILENCE_SECONDS = 30.0  # without any reply, before nodes are asked whether they are still at work
_GRACE_SECONDS = 10.0  # for a reply that is on its way when its node has answered a later message
_GONE = {ErrorCode.NODE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED}
_FORGOTTEN = Error(
    ErrorCode.NODE_UNAVAILABLE, "its SuperNode was started again, or is gone, while it was at work"
)


class Heard(NamedTuple):
    """What came of messages: their replies, the later questions to silent nodes, and the answers to
    those.
    """

    replies: list[Message]
    questions: list[Message]
    answers: list[Message]


def is_lost(reply: Message) -> bool:
    """Whether the node or its ClientApp's process is gone, rather than failed at its task.

    A dead Ray worker is not among these: Flower's pool hands it the next message too.
    """
    return reply.has_error() and reply.error.code in _GONE


def ask(
    grid: Grid, sent: Sequence[Message], timeout: float | None, ledger: Ledger
) -> list[Message]:
    """Send messages and return the replies that came within `timeout` seconds; None waits for all.

    Flower's own Grid looks for replies every three seconds, which is most of a short round; here it
    looks often at first, then less and less, at least once a second. A model is packed on the way,
    and all that passes goes into the ledger.
    """
    pushed = (
        packed(sent) if getattr(grid, "crosses_a_wire", True) else sent
    )  # a grid of our own that does not says so
    asked = dict(zip(grid.push_messages(pushed), pushed, strict=True))
    heard = (
        _collect_apart(grid, asked, timeout)
        if isinstance(grid, HttpGrid)
        else _collect(grid, asked, timeout)
    )
    replies = [unpacked(_of_its_node(reply, asked)) for reply in heard.replies]
    for batch, way in ((sent, DOWN), (replies, UP), (heard.questions, DOWN), (heard.answers, UP)):
        ledger.add(batch, way)
    return replies


def _collect(grid: Grid, asked: Mapping[str, Message], timeout: float | None) -> Heard:
    """Return the replies to these messages, looked for together."""
    waiting, replies, begin = set(asked), list[Message](), time.monotonic()
    while True:
        found = list(grid.pull_messages(waiting))
        replies += found
        waiting -= {reply.metadata.reply_to_message_id for reply in found}
        elapsed = time.monotonic() - begin
        if len(replies) >= len(asked) or (timeout is not None and elapsed >= timeout):
            return Heard(replies, [], [])
        time.sleep(_pause(elapsed))


def _collect_apart(grid: Grid, asked: Mapping[str, Message], timeout: float | None) -> Heard:
    """Return the replies to these messages, each looked for by a thread of its own.

    A node that dies while it sends has announced a reply whose parts never come. Flower waits three
    minutes for them, and the replies of all others in the same call wait with it, beyond any
    timeout; it does not give up the node for that message, nor one that is back before anybody
    looked. As a SuperNode takes one message at a time, the oldest first, nodes that are silent for
    long are greeted: an answer, or Flower's own that the node is gone, says that the older message
    was lost.
    """
    begin = heard_at = time.monotonic()
    found = _Lookout(grid)
    replies: dict[str, Message] = {}
    greeted: dict[str, str] = {}
    lost_at: dict[str, float] = {}
    questions, answers = list[Message](), list[Message]()
    try:
        for key in asked:
            found.watch(key)
        while len(replies) < len(asked) and (timeout is None or time.monotonic() < begin + timeout):
            left = _SLOWEST_POLL_SECONDS if timeout is None else begin + timeout - time.monotonic()
            reply, now = found.next(min(left, _SLOWEST_POLL_SECONDS)), time.monotonic()
            key = reply.metadata.reply_to_message_id if reply else ""
            if reply and key in greeted:
                answers.append(reply)
                lost_at[greeted[key]] = now + _GRACE_SECONDS
            elif reply:
                replies[key], heard_at = reply, now
            for key, at in lost_at.items():
                if key not in replies and now >= at:
                    replies[key] = Message(_FORGOTTEN, reply_to=asked[key])
            if not questions and now >= heard_at + _SILENCE_SECONDS:
                silent = [key for key in asked if key not in replies]
                questions = [query(HELLO, asked[key].metadata.dst_node_id, {}) for key in silent]
                greeted = dict(zip(grid.push_messages(questions), silent, strict=True))
                for key in greeted:
                    found.watch(key)
    finally:
        found.end()
    return Heard(list(replies.values()), questions, answers)


class _Lookout:
    """Threads that look for a reply each, until it comes or nobody waits any more."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._found, self._over = grid, Queue[Message | Exception](), Event()

    def watch(self, key: str) -> None:
        """Look for the reply to this message from now on."""
        Thread(target=self._look, args=(key,), daemon=True).start()

    def next(self, seconds: float) -> Message | None:
        """Return the next reply of any message, None where none comes in time; raises what broke
        the connection.
        """
        try:
            reply = self._found.get(timeout=max(0.0, seconds))
        except Empty:
            return None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def end(self) -> None:
        """Look no more."""
        self._over.set()

    def _look(self, key: str) -> None:
        begin = time.monotonic()
        try:
            while not self._over.is_set():
                for reply in self._grid.pull_messages([key]):
                    self._found.put(reply)
                    return
                self._over.wait(_pause(time.monotonic() - begin, _FASTEST_APART_SECONDS))
        except Exception as error:  # of the connection; raised where the replies are waited for
            self._found.put(error)


def _pause(elapsed: float, fastest: float = _FASTEST_POLL_SECONDS) -> float:
    return min(_SLOWEST_POLL_SECONDS, max(fastest, elapsed / 10))


def _of_its_node(reply: Message, asked: Mapping[str, Message]) -> Message:
    """Return a reply as of the node that was asked: where Flower gives a node up, the SuperLink
    answers for it.
    """
    message = asked.get(reply.metadata.reply_to_message_id)
    if (
        not reply.has_error()
        or message is None
        or reply.metadata.src_node_id == message.metadata.dst_node_id
    ):
        return reply
    return Message(reply.error, reply_to=message)
