"""What a client does for a message: message -> Site -> method -> reply. Imports torch, unlike the ClientApp."""

from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import Context, Message

from dance_flwr import messages
from dance_flwr.client import Client, close_clients, open_client
from dance_flwr.config import parse
from dance_flwr.device import claim, memory_ratio, pick_device
from dance_flwr.disk import disk_of
from dance_flwr.privacy.client import demands_masks, task_of
from dance_flwr.privacy.dp import protect

Task = Callable[[Message, Client], Message]


def describe(message: Message, context: Context) -> Message:
    """Say what the local data asks of the global model; counts only where the client may show its own."""
    sizes = not demands_masks(context)
    return _do(
        lambda asked, client: messages.schema_reply(asked, messages.schema_of(client.site, sizes)), message, context
    )


def work(message: Message, context: Context) -> Message:
    """Train, evaluate, weigh or exchange, as the message asks."""
    return _do(_TASKS[task_of(message, context)], message, context)


def _do(task: Task, message: Message, context: Context) -> Message:
    """Do a task with the client of this node's folder, on this node's device.

    Raises
    ------
    UserError : the node has no such device or too little of its memory, its disk is full or closed
    """
    folder, config = _folder(message, context), parse(context.run_config)
    device = pick_device(config, context.node_config)
    with disk_of(folder), claim(device, memory_ratio(context.node_config)):
        try:
            return task(message, open_client(folder, config, device))
        except torch.OutOfMemoryError:
            close_clients()  # under Ray a process holds the data of every client that it has been
        return task(message, open_client(folder, config, device))


def _folder(message: Message, context: Context) -> Path:
    """Return the folder that this node names, or the one that was prepared for its partition."""
    own = context.node_config.get("data-path")
    partition = int(context.node_config.get("partition-id", 0))
    return Path(str(own)) if own else Path(messages.config_of(message)["partition-dir"]) / f"client-{partition}"


def _train(message: Message, client: Client) -> Message:
    config = messages.config_of(message)
    start, round_ = messages.model_of(message), config["server-round"]
    given, first = messages.given_of(message), config.get(messages.FIRST, False)
    state, weight, report = client.train(start, config["run"], round_, given, first)
    norm, own = config[messages.NORM], client.site.card.client
    upload = protect(state, start, client.config, norm=norm, round_=round_, client=own)
    return messages.train_reply(message, upload.state, weight, report, upload.unclipped)


def _evaluate(message: Message, client: Client) -> Message:
    config = messages.config_of(message)
    state = messages.model_of(message)
    if config.get("final", False):
        return messages.evaluate_reply(message, client.finish(state, config["run"], config["server-round"]))
    return messages.evaluate_reply(message, client.validate(state, config["run"], config["server-round"]))


def _weigh(message: Message, client: Client) -> Message:
    tokens = int(client.site.bank.tokens.sum())
    return messages.weigh_reply(message, client.weight, client.site.num_nodes, tokens)


def _exchange(message: Message, client: Client) -> Message:
    config, inbox = messages.config_of(message), messages.state_of(messages.exchanged(message))
    return messages.exchange_reply(message, client.exchange(config["run"], config["step"], inbox))


_TASKS: dict[str, Task] = {messages.EXCHANGE: _exchange, "train": _train, "evaluate": _evaluate, "weigh": _weigh}
