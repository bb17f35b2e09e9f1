"""Ask one client what an honest run asked it, with lies in the message or the configuration."""

import shutil
from copy import deepcopy

from flwr.app import ConfigRecord, Message, RecordDict

import client_app
from dance_flwr.federation.privacy.accounting import ACCOUNT
from dance_flwr.federation.secagg.signatures import ledger_folder
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of


def first_training(run, **values):
    """The first message to train of an honest run, and the context of its client.

    `run` is the fixture of that name; `values` are keys of the run.
    """
    found = []

    def app(message, context):
        if message.metadata.message_type == keys.TRAIN and keys.ARRAYS in message.content:
            found.append((message, deepcopy(context)))
        return client_app.app(message, context)

    run(app=app, **values)
    return found[0]


def asker(asked, folder):
    """A function that asks a client, whose data are copied to `folder`, and returns its reply.

    `asked` is what `first_training` returned. The function takes entries of the node's and the
    run's configuration, entries of the message's own configuration by name, another model to train,
    a model to validate beside it, and another task.
    """
    message, context = asked
    config = dict(message.content.config_records[keys.CONFIG])
    partition = context.node_config[keys.PARTITION_ID]
    shutil.copytree(f"{config[keys.PARTITION_DIR]}/client-{partition}", folder)
    (folder / ACCOUNT).unlink(missing_ok=True)

    def ask(node=None, run_config=None, *, model=None, deployed=None, task=keys.TRAIN, **values):
        at = deepcopy(context)
        at.node_config |= {keys.DATA_PATH: str(folder), **(node or {})}
        at.run_config |= run_config or {}
        named = {name.replace("_", "-"): value for name, value in values.items()}
        records = dict(message.content) | {keys.CONFIG: ConfigRecord(config | named)}
        models = {keys.ARRAYS: model, keys.DEPLOYED: deployed}
        records |= {name: arrays_of(state) for name, state in models.items() if state is not None}
        lie = Message(RecordDict(records), message.metadata.dst_node_id, task)
        return client_app.app(lie, at)

    ask.folder, ask.model, ask.run = folder, messages.model_of(message), config[keys.RUN]
    ask.ledger = ledger_folder({keys.DATA_PATH: str(folder)})
    return ask


def reason(reply):
    """The text of an error; "" if the reply is none."""
    return str(reply.error.reason) if reply.has_error() else ""
