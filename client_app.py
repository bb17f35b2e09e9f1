"""ClientApp: message -> Site -> method -> reply."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dance_flwr import messages
from dance_flwr.client import Client, open_client
from dance_flwr.config import parse
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import code_fingerprint
from dance_flwr.privacy.client import demands_masks, secure_sum, task_of
from dance_flwr.privacy.dp import protect

app = ClientApp()


def _client(message: Message, context: Context) -> Client:
    """Open the folder that this node names, or the one that was prepared for its partition."""
    config = parse(context.run_config)
    own = context.node_config.get("data-path")
    partition = int(context.node_config.get("partition-id", 0))
    folder = Path(str(own)) if own else Path(messages.config_of(message)["partition-dir"]) / f"client-{partition}"
    return open_client(folder, config)


def _answer(work: Callable[[], Message], message: Message) -> Message:
    """Turn an error that a user can mend into an error reply with its one line."""
    try:
        return work()
    except UserError as error:
        return messages.error_reply(message, str(error))


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say which partition this node holds and which code it runs."""
    return messages.hello_reply(
        message,
        messages.Hello(
            partition=int(context.node_config.get("partition-id", 0)),
            owns_data="data-path" in context.node_config,
            code=code_fingerprint(),
        ),
    )


@app.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Say what the local data asks of the global model."""

    def work() -> Message:
        client = _client(message, context)
        return messages.schema_reply(message, messages.schema_of(client.site, not demands_masks(context)))

    return _answer(work, message)


@app.train(mods=[secure_sum])
def train(message: Message, context: Context) -> Message:
    """Run one round of the method and upload the model; under a mask also what else the server asks to be summed."""
    return _answer(lambda: _TASKS[task_of(message, context)](message, context), message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Count hits on the local graph; with the final model also on the test nodes, leaving evidence behind."""
    return _answer(lambda: _TASKS[task_of(message, context)](message, context), message)


def _train(message: Message, context: Context) -> Message:
    config = messages.config_of(message)
    client = _client(message, context)
    start, round_ = messages.model_of(message), config["server-round"]
    state, weight, report = client.train(start, config["run"], round_)
    norm, own = config[messages.NORM], client.site.card.client
    upload = protect(state, start, client.config, norm=norm, round_=round_, client=own)
    return messages.train_reply(message, upload.state, weight, report, upload.unclipped)


def _evaluate(message: Message, context: Context) -> Message:
    config = messages.config_of(message)
    client = _client(message, context)
    state = messages.model_of(message)
    if config.get("final", False):
        return messages.evaluate_reply(message, client.finish(state, config["run"], config["server-round"]))
    return messages.evaluate_reply(message, client.validate(state))


def _weigh(message: Message, context: Context) -> Message:
    client = _client(message, context)
    tokens = int(client.site.bank.tokens.sum())
    return messages.weigh_reply(message, client.weight, client.site.num_nodes, tokens)


_TASKS = {"train": _train, "evaluate": _evaluate, "weigh": _weigh}
