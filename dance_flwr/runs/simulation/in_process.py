"""Run the two apps on this machine in one process, one client after the other.

No Ray, no ports, no start-up: the unmodified ClientApp is called where the server sends a message.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from dance_flwr import events
from dance_flwr.config.paths import PROJECT, RESULT, check_out, data_root
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.imports.loading import absolute_source
from dance_flwr.federation.flower import Run, TaskIdentity
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.runs.locks import is_locked
from dance_flwr.runs.result import read_result
from dance_flwr.runs.resume import refuse_earlier

OnRound = Callable[[Mapping[str, Any]], None]


def placed(config: RunConfig) -> RunConfig:
    """Return the configuration with a folder for the run and absolute paths.

    Clients of an engine may have another working directory, so all their paths are absolute.
    """
    name = time.strftime(
        f"{Path(config.data).name}-{config.method}-seed{config.seed}-%Y%m%d-%H%M%S"
    )
    folder = Path(config.out).expanduser().resolve() if config.out else Path.cwd() / "runs" / name
    root = data_root(config)
    data = absolute_source(config.data, root)
    check_out(folder / RESULT, "`out`")
    if not is_locked(folder):  # the lock of a run at work refuses another one
        refuse_earlier(config, folder)
    return replace(config, out=str(folder), data=data, data_root=str(root))


def run_in_process(
    config: RunConfig, folder: Path, on_round: OnRound, name: str = ""
) -> dict[str, Any]:
    """Run the unmodified apps in this process, one client after the other; return the result."""
    with apps():
        import client_app
        import server_app

        keep_errors_only()
        # Another number for every run, as clients keep a folder for each.
        run_id = time.time_ns()
        grid = InProcessGrid(client_app.app, flatten(config), config.clients, run_id=run_id)
        server_app.run(grid, config, name or str(run_id), folder, on_round)
    return read_result(folder)


def keep_errors_only() -> None:
    """Keep the log of Flower to its errors, unless a program or FLWR_LOG_LEVEL asks for more."""
    if not events.structured() and "FLWR_LOG_LEVEL" not in os.environ:
        logging.getLogger("flwr").setLevel(logging.ERROR)


@contextmanager
def apps() -> Iterator[None]:
    """Make the two apps importable."""
    sys.path.insert(0, str(PROJECT))
    try:
        yield
    finally:
        sys.path.remove(str(PROJECT))


class InProcessGrid(Grid):
    """Call one client after the other, in the order of the messages.

    Parameters
    ----------
    client_app : answers every message
    run_config : flat keys, the same for all clients
    nodes : node id -> node config; a number = so many nodes, each with its own partition
    on_message : called with every message and every reply, for recording
    """

    # Messages are not packed, so that tests can read them.
    crosses_a_wire = False

    def __init__(
        self,
        client_app: ClientApp,
        run_config: Mapping[str, Any],
        nodes: int | Mapping[int, Mapping[str, Any]],
        *,
        run_id: int = 1,
        on_message: Callable[[Message], None] | None = None,
    ) -> None:
        if isinstance(nodes, int):
            nodes = {
                number + 1: {keys.PARTITION_ID: number, keys.NUM_PARTITIONS: nodes}
                for number in range(nodes)
            }
        self._app = client_app
        self._run = Run.create_empty(run_id)
        self._on_message = on_message
        self._contexts = {
            # One context per node over the whole run, as Flower keeps the state of each.
            node: Context(run_id, node, dict(config), RecordDict(), dict(run_config))
            for node, config in nodes.items()
        }
        self._replies: dict[str, Message] = {}
        self._numbers = count()
        # Under an engine, Flower sets the identity that messages carry.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 0, run_id

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer the messages and keep the replies."""
        # In the order of messages, so that a run repeats itself to the last bit (decision 1).
        return [self._answer(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return and forget the replies to these messages."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Answer the messages; `timeout` has no effect."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> str:
        node, key = message.metadata.dst_node_id, f"message-{next(self._numbers)}"
        message.metadata.__dict__["_message_id"] = key  # as Flower's own grids do
        if self._on_message:
            # A copy, as strategies change the config of a round in the next one.
            self._on_message(_delivered(message))
        try:
            reply = self._app(_delivered(message), self._contexts[node])
        except Exception as error:
            # As an engine does: the failure of a client must not end the server's process.
            reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
        if self._on_message:
            self._on_message(reply)
        self._replies[key] = reply
        return key


def _delivered(message: Message) -> Message:
    """Return the message with copies of its config records, which others change later."""
    records = dict(message.content)
    for name, record in message.content.items():
        if isinstance(record, ConfigRecord):
            records[name] = ConfigRecord(dict(record))
    return with_content(message, RecordDict(records))
