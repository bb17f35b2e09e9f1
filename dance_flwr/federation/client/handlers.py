"""Answer messages at a client: message -> ClientData -> method -> reply.

Unlike the ClientApp, this module imports torch.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.reading_probe import with_choice
from dance_flwr.config.paths import LEDGER
from dance_flwr.config.sections import FLOAT32, PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import check_run, inside, run_folder
from dance_flwr.data.digests import check_files, data_commitment
from dance_flwr.data.text.usage import usage_of
from dance_flwr.errors import UserError, disk_of
from dance_flwr.federation.client.admission import (
    Budget,
    BudgetError,
    Received,
    admit,
    check_start,
    clipped,
    count_task,
    on_device,
    received,
    shows_single_row,
)
from dance_flwr.federation.client.app import REFUSAL
from dance_flwr.federation.client.client import Client, close_clients, open_client
from dance_flwr.federation.client.device import claim, device_label, memory_ratio, pick_device
from dance_flwr.federation.client.run_files import keep_calibration, keep_final
from dance_flwr.federation.node_config import client_number, run_config_of
from dance_flwr.federation.secagg.client import demands_masks, refusing_once, task_of
from dance_flwr.federation.secagg.sums import options_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import TOKEN_COUNTS, Report, Tokens
from dance_flwr.nn.moving import moved

LOG = logging.getLogger("flwr")
Task = Callable[[Message, Client], Message]
_LLM = "llm_"
_LLM_COUNTS = [name for name in TOKEN_COUNTS if name.startswith(_LLM)]
_MAX_NAME = 200  # characters of the name of a language model that are sent


def describe(message: Message, context: Context) -> Message:
    """Check the local data and answer what it requires of the global model.

    Counts are withheld under masks.
    """
    admit(keys.DESCRIBE, message, context)
    # The size of a single client is what a masked sum hides, and no noise covers.
    sizes = not (demands_masks(context) or run_config_of(context).privacy.withholds_numbers)

    def described(request: Message, client: Client) -> Message:
        data, card = client.data, client.data.card
        schema = messages.Schema(
            class_names=card.class_names,
            text_dim=data.text_dim,
            clients=card.clients,
            num_nodes=card.num_nodes if sizes else 0,
            encoder_sha256=data.encoder_sha256,
            encoder_tokens=int(data.bank.tokens.sum()) if sizes else 0,
            device=device_label(data.device),
            data_sha256=data_commitment(card),
            reading_votes=tuple(client.reading_votes()) if sizes else (),
        )
        return messages.schema_reply(request, schema)

    return _do(described, message, context, verify=True)


def seal(message: Message, context: Context) -> Message:
    """Keep the temperature of a run; answer the hash of all evidence that the run has left here."""
    budget = admit(keys.SEAL, message, context)
    # The name becomes part of a path.
    check_run(run := str((config := messages.config_of(message)).get(keys.RUN)))
    if budget.ledger:
        count_task(message, keys.SEAL, budget.ledger, budget.terms, run_config_of(context))
    if keys.DATA_PATH in context.node_config:
        fitted = config.get(keys.TEMPERATURE), config.get(keys.SCORED_NODES)
        keep_calibration(_folder(message, context), run, *fitted)
    return _do(
        lambda request, client: messages.seal_reply(request, client.seal(run)), message, context
    )


def work(message: Message, context: Context) -> Message:
    """Train, evaluate, weigh or exchange, as the message requests."""
    task = task_of(message, context)
    check_run(str(messages.config_of(message).get(keys.RUN)))
    # All checks of the request come before the data.
    budget = admit(task, message, context)
    # Counted before it begins: a client that is killed during training has trained.
    # A node with its own data also remembers how far a run came, whatever its terms.
    if ledger := budget.ledger or (_folder(message, context) if budget.terms.counted else None):
        count_task(message, task, ledger, budget.terms, run_config_of(context))
    tasks: dict[str, Task] = {
        keys.TRAIN: partial(_train, context=context, budget=budget),
        # A simulation keeps one copy of the model, at its server.
        keys.EVALUATE: partial(_evaluate, keep=keys.DATA_PATH in context.node_config),
        keys.EXCHANGE: _exchange,
        keys.WEIGH: _weigh,
    }
    return _do(tasks[task], message, context)


def _do(task: Task, message: Message, context: Context, *, verify: bool = False) -> Message:
    """Run a task of an admitted message with the client of this node, on this node's device.

    Parameters
    ----------
    verify : whether to check the files of the client before anything reads them
    """
    config = run_config_of(context)
    try:
        with disk_of(folder := _folder(message, context)):
            if verify:
                check_files(folder)
            return _answer(task, message, context, folder, config)
    except BudgetError:
        raise
    except Exception as error:
        if not config.privacy.withholds_numbers:
            raise
        # An error may hold numbers of the client, which no noise covers.
        LOG.warning("%s: %s", type(error).__name__, error)
        LOG.debug("the traceback of this error", exc_info=True)
        raise UserError(REFUSAL) from None


def _answer(
    task: Task, message: Message, context: Context, folder: Path, config: RunConfig
) -> Message:
    # Why one reading for all (decision 18): averaged models must have the same inputs.
    config = with_choice(config, messages.config_of(message))
    device = pick_device(config, context.node_config)
    with claim(device, memory_ratio(context.node_config)):
        try:
            return task(message, open_client(folder, config, device))
        except torch.OutOfMemoryError:
            close_clients()  # under Ray, a process holds the data of every client that it ran
        # Outside of the `except`, whose exception holds the tensors of the failed try.
        return task(message, open_client(folder, config, device))


def _folder(message: Message, context: Context) -> Path:
    """Return the folder in the node config, or the one that was prepared for the partition."""
    if path := context.node_config.get(keys.DATA_PATH):
        return Path(str(path))
    number = client_number(context.node_config)
    # The server names this folder: links that lead out of it are refused.
    return inside(Path(messages.config_of(message)[keys.PARTITION_DIR]), f"client-{number}")


def _train(message: Message, client: Client, context: Context, budget: Budget) -> Message:
    config, model, data = messages.config_of(message), received(message), client.data
    start = model.state
    info = replace(
        _info(config, model),
        server_payload=moved(messages.payload_of(message), data.device),
        needs_initial_upload=config.get(keys.NEEDS_INITIAL_UPLOAD, False),
    )
    # Why (decision 8): a refusal may depend on the client's texts. It is one bit, once per run.
    with refusing_once(context):
        bound = check_start(client, model, info.round, budget.terms.max_change)
    validated = None
    if config.get(keys.VALIDATE, False):
        # As the round that made the deployed model would have been validated.
        client.own, deployed = None, model
        if keys.DEPLOYED in message.content:
            with refusing_once(context):
                deployed = received(message, keys.DEPLOYED)
                check_start(client, deployed, info.round, budget.terms.max_change)
        last = replace(info, round=info.round - 1, model_id=deployed.model_id)
        validated = client.validate(on_device(deployed, data.device), last)
    state, report = client.train(
        on_device(model, data.device), info, proximal_mu=config.get(keys.PROXIMAL_MU, 0.0)
    )
    if shows_single_row(client, start, state):
        LOG.warning(
            "client %d: left out round %d, as its update would show the text of a single node in "
            "the sum",
            *(data.card.client, info.round),
        )
        state = dict(start)
    budget.charge(client.config, data, info.run)  # before anything noisy exists
    # Why (decision 14): clip, add noise, and round last.
    upload, unclipped = clipped(state, start, bound), None
    # Imported here: most runs have neither noise nor rounding, and a node need not trust either.
    if client.config.privacy.dp != "none":
        from dance_flwr.federation.client.uploads import noise_step
        from dance_flwr.federation.privacy.dp import ClientMechanism

        norm, step = config[keys.CLIPPING_NORM], noise_step(message, client)
        mechanism = ClientMechanism(client.config, norm, info.round, data.card.client, step)
        upload, unclipped = mechanism.protect(upload, start)
    if client.config.privacy.withholds_numbers:
        report = Report()  # every number is 0
    # A masked sum has levels of its own, to which its clients round.
    if client.config.upload_precision == FLOAT32 or options_of(message):
        return messages.train_reply(message, upload, client.weight, report, unclipped, validated)
    from dance_flwr.federation.client.uploads import rounded_upload

    sent = rounded_upload(upload, start, client.config, config.get(keys.CLIPPING_NORM, 0.0))
    reply = messages.train_reply(message, sent.tensors, client.weight, report, unclipped, validated)
    return messages.with_scales(reply, sent.scales)


def _evaluate(message: Message, client: Client, *, keep: bool) -> Message:
    config, model = messages.config_of(message), received(message)
    state, info = model.state, _info(config, model)
    client.own = None  # which may be that of another run in this process
    if config.get(keys.PERSONALISE, False):
        from dance_flwr.federation.client.personal import own_losses

        started = time.perf_counter()
        losses, nodes = own_losses(client, state, info)
        return messages.losses_reply(message, losses, nodes, time.perf_counter() - started)
    if config.get(keys.FINAL, False):
        if PERSONAL[client.config.personal]:
            from dance_flwr.federation.client.personal import personalise

            sums = config.get(keys.LOSSES, []), config.get(keys.SCORED_NODES, 0)
            client.own = personalise(client, state, info, *sums)
        counts = client.finish(state, info)
        if keep:
            keep_final(client.data.folder, client.config, state, info, counts)
        # After `finish`, in which the method may still ask its language model.
        return messages.evaluate_reply(
            message, counts, _tokens_of(client.data, info.run, client.config)
        )
    return messages.evaluate_reply(message, client.validate(state, info))


def _info(config: Mapping[str, Any], model: Received) -> RoundInfo:
    return RoundInfo(config[keys.RUN], config[keys.ROUND], model.model_id)


def _tokens_of(data: ClientData, run: str, config: RunConfig) -> Tokens:
    """Return the run's counts of evidence and of calls of a language model at this client."""
    if config.privacy.withholds_numbers:
        return Tokens()
    folders = [folder := run_folder(data.folder, run)]
    if PERSONAL[config.personal]:
        from dance_flwr.federation.client.own_models import tuning_run

        folders.append(run_folder(data.folder, tuning_run(run)))  # the evidence of tuning
    counted = usage_of(folders, data.bank.tokens)
    if not (folder / LEDGER).is_file():  # a run without a language model imports none of it
        return counted
    from dance_flwr.llm.session import CallCounts

    ledger = CallCounts.load(folder / LEDGER)
    counts = {name: getattr(ledger, name.removeprefix(_LLM)) for name in _LLM_COUNTS}
    model, tokeniser = ledger.model[:_MAX_NAME], ledger.counted_by[:_MAX_NAME]
    return replace(counted, **counts, model=model, tokeniser=tokeniser)


def _weigh(message: Message, client: Client) -> Message:
    if client.config.privacy.withholds_numbers:
        return messages.weigh_reply(message, client.weight, 0, 0, ())
    tokens = int(client.data.bank.tokens.sum())
    size = client.data.num_nodes
    return messages.weigh_reply(message, client.weight, size, tokens, client.reading_votes())


def _exchange(message: Message, client: Client) -> Message:
    config, inbox = messages.config_of(message), state_of(messages.exchange_record(message))
    answer = client.exchange(config[keys.RUN], config[keys.STEP], inbox)
    return messages.exchange_reply(message, answer)
