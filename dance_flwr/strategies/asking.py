"""Messages out, replies in: looked for often, each for itself over a network, and each of the node that was asked."""

import time
from collections.abc import Mapping, Sequence
from queue import Empty, Queue
from threading import Event, Thread

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.superlink.grid import HttpGrid

_FASTEST_POLL_SECONDS, _SLOWEST_POLL_SECONDS = 0.05, 1.0
_FASTEST_APART_SECONDS = 0.5  # a node looks for messages every three seconds, and each look is a request


def is_lost(reply: Message) -> bool:
    """Whether the node is gone, rather than failed at its task: Flower gave it up, or its Ray worker died."""
    if not reply.has_error():
        return False
    return reply.error.code == ErrorCode.NODE_UNAVAILABLE or "<class 'ray.exceptions." in str(reply.error.reason)


def ask(grid: Grid, sent: Sequence[Message], timeout: float | None) -> list[Message]:
    """Send messages and return the replies that came within `timeout` seconds; None waits for all.

    Flower's own Grid looks for replies every three seconds, which is most of a short round; here it looks often at
    first, then less and less, at least once a second.
    """
    asked = dict(zip(grid.push_messages(sent), sent, strict=True))
    collect = _collect_apart if isinstance(grid, HttpGrid) else _collect
    return [_of_its_node(reply, asked) for reply in collect(grid, list(asked), timeout)]


def _collect(grid: Grid, ids: Sequence[str], timeout: float | None) -> list[Message]:
    """Return the replies to these messages, looked for together."""
    waiting, replies, begin = set(ids), list[Message](), time.monotonic()
    while True:
        found = list(grid.pull_messages(waiting))
        replies += found
        waiting -= {reply.metadata.reply_to_message_id for reply in found}
        elapsed = time.monotonic() - begin
        if len(replies) >= len(ids) or (timeout is not None and elapsed >= timeout):
            return replies
        time.sleep(_pause(elapsed))


def _collect_apart(grid: Grid, ids: Sequence[str], timeout: float | None) -> list[Message]:
    """Return the replies to these messages, each looked for by a thread of its own.

    A node that dies while it sends has announced a reply whose parts never come. Flower waits three minutes for them,
    and the replies of all others in the same call wait with it, beyond any timeout.
    """
    found, over, begin = Queue[Message | Exception](), Event(), time.monotonic()

    def look(key: str) -> None:
        try:
            while not over.is_set():
                for reply in grid.pull_messages([key]):
                    found.put(reply)
                    return
                over.wait(_pause(time.monotonic() - begin, _FASTEST_APART_SECONDS))
        except Exception as error:  # of the connection; raised where the replies are waited for
            found.put(error)

    for key in ids:
        Thread(target=look, args=(key,), daemon=True).start()
    replies: list[Message] = []
    try:
        while len(replies) < len(ids):
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begin))
            reply = found.get(timeout=left)
            if isinstance(reply, Exception):
                raise reply
            replies.append(reply)
    except Empty:
        pass
    finally:
        over.set()
    return replies


def _pause(elapsed: float, fastest: float = _FASTEST_POLL_SECONDS) -> float:
    return min(_SLOWEST_POLL_SECONDS, max(fastest, elapsed / 10))


def _of_its_node(reply: Message, asked: Mapping[str, Message]) -> Message:
    """Return a reply as of the node that was asked: where Flower gives a node up, the SuperLink answers for it."""
    message = asked.get(reply.metadata.reply_to_message_id)
    if not reply.has_error() or message is None or reply.metadata.src_node_id == message.metadata.dst_node_id:
        return reply
    return Message(reply.error, reply_to=message)
