"""Masked sums of numbers in this process: nodes with keys, clients without data, lying servers."""

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from dance_flwr.config.tree import flatten, parse
from dance_flwr.deploy.certificates import make_key
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.secagg.client import secure_sum
from dance_flwr.federation.server.grid import SecureGrid
from dance_flwr.federation.server.polling import MessageLog
from dance_flwr.federation.wire import keys
from dance_flwr.runs.simulation.in_process import InProcessGrid

CLIENTS, THRESHOLD = 5, 3
COMMON = {"clients": CLIENTS, "privacy.secure-aggregation": True}
# Settled, so that these clients, which have no data, vote for no reading of texts and edges.
COMMON |= {"text-pooling": "agreement", "edge-gates": "none"}


def nodes_with_keys(folder, clients=CLIENTS):
    """Node configurations with a key per client and the file of all public keys."""
    public = [make_key(folder / f"{client}.key").read_text() for client in range(clients)]
    lines = [f"{client} {line}" for client, line in enumerate(public)]
    (folder / "peer-keys").write_text("".join(lines))
    return {
        client + 1: {
            "partition-id": client,
            "num-partitions": clients,
            "signing-key": str(folder / f"{client}.key"),
            "peer-keys": str(folder / "peer-keys"),
        }
        for client in range(clients)
    }


def altered(message, message_type=keys.TRAIN, **values):
    """The message with other values of its stage; None takes a value away."""
    stage = dict(message.content.config_records[SECAGG_CONFIGS]) | values
    stage = {name: value for name, value in stage.items() if value is not None}
    records = dict(message.content) | {SECAGG_CONFIGS: ConfigRecord(stage)}
    return typed(message, message_type, records)


def typed(message, message_type, records):
    """These records as a message of a type to the same node."""
    return Message(RecordDict(records), message.metadata.dst_node_id, message_type)


def weight(client):
    """The number of nodes of a client, which no server may learn."""
    return 101 + 7 * client**2


def counting_app():
    """A ClientApp that answers every sum with its client's weight."""
    app = ClientApp()

    @app.train(mods=[secure_sum])
    def train(message, context):
        nodes = weight(context.node_config["partition-id"])
        metrics = {keys.WEIGHT: nodes, keys.NODES: nodes, keys.ENCODER_TOKENS: 1}
        return Message(RecordDict({keys.METRICS: MetricRecord(metrics)}), reply_to=message)

    return app


class Lying(InProcessGrid):
    """A Grid whose server sends `lie(message)` in the place of a message, and keeps the replies."""

    def __init__(self, node_configs, lie=lambda message: message, app=None):
        config = parse(COMMON)
        super().__init__(
            app or counting_app(),
            flatten(config),
            node_configs,
            on_message=self._note,
        )
        self.lie, self.replies, self._asked = lie, [], {}
        clients = {node: number for number, node in enumerate(node_configs)}
        self.server = SecureGrid(self, clients, config, MessageLog())

    def push_messages(self, messages):
        return super().push_messages([self.lie(message) for message in messages])

    def _note(self, message):
        """Keep (stage, reply)."""
        if message.metadata.reply_to_message_id:
            stage = self._asked[message.metadata.reply_to_message_id]
            self.replies.append((stage, message))
        else:
            self._asked[message.metadata.message_id] = stage_of(message)

    def total(self):
        """The sum of the weights, as an honest server reads it."""
        return self.server.sizes({}, [], {}, 10.0)["nodes_per_client"][None]

    def answers(self, stage, node):
        """The replies of a node to a stage."""
        return [
            reply
            for asked, reply in self.replies
            if asked == stage and reply.metadata.src_node_id == node
        ]


def stage_of(message):
    """The stage that a message to a client belongs to."""
    return message.content.config_records[SECAGG_CONFIGS][Key.STAGE]
