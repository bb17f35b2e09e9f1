"""What a client does for a message: message -> Site -> method -> reply. Imports torch, unlike the ClientApp."""

from pathlib import Path

from flwr.app import Context, Message

from dance_flwr import messages
from dance_flwr.client import Client, open_client
from dance_flwr.config import parse
from dance_flwr.privacy.client import demands_masks, task_of
from dance_flwr.privacy.dp import protect


def describe(message: Message, context: Context) -> Message:
    """Say what the local data asks of the global model; counts only where the client may show its own."""
    site = _client(message, context).site
    return messages.schema_reply(message, messages.schema_of(site, not demands_masks(context)))


def work(message: Message, context: Context) -> Message:
    """Train, evaluate or weigh, as the message asks."""
    return _TASKS[task_of(message, context)](message, _client(message, context))


def _client(message: Message, context: Context) -> Client:
    """Open the folder that this node names, or the one that was prepared for its partition."""
    own = context.node_config.get("data-path")
    partition = int(context.node_config.get("partition-id", 0))
    folder = Path(str(own)) if own else Path(messages.config_of(message)["partition-dir"]) / f"client-{partition}"
    return open_client(folder, parse(context.run_config))


def _train(message: Message, client: Client) -> Message:
    config = messages.config_of(message)
    start, round_ = messages.model_of(message), config["server-round"]
    state, weight, report = client.train(start, config["run"], round_)
    norm, own = config[messages.NORM], client.site.card.client
    upload = protect(state, start, client.config, norm=norm, round_=round_, client=own)
    return messages.train_reply(message, upload.state, weight, report, upload.unclipped)


def _evaluate(message: Message, client: Client) -> Message:
    config = messages.config_of(message)
    state = messages.model_of(message)
    if config.get("final", False):
        return messages.evaluate_reply(message, client.finish(state, config["run"], config["server-round"]))
    return messages.evaluate_reply(message, client.validate(state))


def _weigh(message: Message, client: Client) -> Message:
    tokens = int(client.site.bank.tokens.sum())
    return messages.weigh_reply(message, client.weight, client.site.num_nodes, tokens)


_TASKS = {"train": _train, "evaluate": _evaluate, "weigh": _weigh}
