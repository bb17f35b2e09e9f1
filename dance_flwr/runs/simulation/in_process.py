"""A Grid that calls the unmodified ClientApp in this process: no Ray, no ports, no start-up."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from dance_flwr.federation.flower import Run, TaskIdentity
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import with_content


class InProcessGrid(Grid):
    """Call one client after the other, in the order of the messages.

    Parameters
    ----------
    client_app : answers every message
    run_config : flat keys, the same for all clients
    nodes : node id -> node config; a number stands for so many nodes of one partition each
    on_message : called with every message and every reply, for recording
    """

    # Nothing is packed, so that messages can be read where they pass.
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
        # Messages carry the identity of the process's task; under an engine, Flower sets it.
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
        # In the order of messages: a run repeats itself to the last bit (decision 1).
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
            # As an engine sends the failure of a client: it must not end the server's process.
            reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)
        if self._on_message:
            self._on_message(reply)
        self._replies[key] = reply
        return key


def _delivered(message: Message) -> Message:
    """Return the message with copies of its config records, which others change later."""
    records = dict(message.content)
    for name, record in message.content.config_records.items():
        records[name] = ConfigRecord(dict(record))
    return with_content(message, RecordDict(records))
