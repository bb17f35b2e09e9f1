"""Personalise a run at a client: train models of its own, and choose how much of one is deployed.

They read texts and edges as the federation does. "alone" has the run's backbone, widths and
schedule; "tuned" is the global model after more rounds of the run's method at this client. Nothing
of them leaves the client but the losses of their mixtures with the global model.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.client.own_model import (
    OwnModel,
    made_of,
    own_path,
    training_config,
    tuning_run,
)
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.mixture import best_candidate, candidates, mixture_losses

LOG = logging.getLogger("flwr")


def own_model(client: Client, state: Mapping[str, Tensor], info: RoundInfo) -> OwnModel:
    """Return the client's own models of a run, trained now unless they are stored."""
    kinds, path = PERSONAL[client.config.personal], own_path(client.data.folder, info.run)
    origin = made_of(client.config, client.data, info.model_id)
    if (stored := OwnModel.read(path, origin)) is not None:
        return stored
    states = {kind: _trained(client, kind, state, info.run) for kind in kinds}
    model = OwnModel(states, kinds[0])
    model.save(path, origin)
    return model


def _trained(
    client: Client, kind: str, state: Mapping[str, Tensor], run: str
) -> Mapping[str, Tensor]:
    """Train one kind of model for its rounds, with the running average of the run.

    "alone" is as `local-only` with the run's keys; "tuned" starts at the global model, with a fresh
    schedule and a fresh state of the method. The last model is taken, so that no validation node
    chooses it.
    """
    data, config = client.data, training_config(client.config, kind, client.data)
    single, average = Client(data, config), ModelAverage(config.ema_decay)
    if kind == ALONE:
        shape = shape_of(data.text_dim, len(data.card.class_names), config)
        state = initial_model(shape, config).state_dict()
    mean = arrays_of(state)
    for round_ in range(1, config.rounds + 1):
        state, _ = single.train(state, RoundInfo(tuning_run(run), round_, ""))
        mean = average.add(arrays_of(state))
    LOG.info("client %d: trained its model (%s), %d rounds", data.card.client, kind, config.rounds)
    return state_of(mean)


def own_losses(
    client: Client, state: Mapping[str, Tensor], info: RoundInfo
) -> tuple[list[int], int]:
    """Return the losses of `candidates` on the client's validation nodes, and their number."""

    def measure() -> tuple[list[int], int]:
        model = own_model(client, state, info)
        nodes = validated_nodes(client.data, client.config)
        client.load(state)
        shared = client.predict(replace(info, final=True), nodes)["deployed"]
        labels, losses = client.data.labels[nodes], list[int]()
        for kind in PERSONAL[client.config.personal]:
            shares = [share for of, share in candidates(client.config.personal) if of == kind]
            own = client.own_probs(kind, model, info.run)[nodes]
            losses += mixture_losses(own, shared, labels, shares)
        return losses, len(nodes)

    # They are sent first, and with the final model they choose the share.
    origin = made_of(client.config, client.data, info.model_id)
    return client.data.cached("own losses", (info.run, origin), measure)


def personalise(
    client: Client,
    state: Mapping[str, Tensor],
    info: RoundInfo,
    every: Sequence[int],
    nodes: int,
) -> OwnModel:
    """Choose the client's own model and its share, and store them.

    Parameters
    ----------
    state : the global model
    every, nodes : sum of `own_losses` over the clients; empty and 0 where nobody may count
    """
    losses, _ = own_losses(client, state, info)
    kind, share = candidates(client.config.personal)[best_candidate(losses, every, nodes)]
    chosen = replace(own_model(client, state, info), kind=kind, share=share)
    origin = made_of(client.config, client.data, info.model_id)
    chosen.save(own_path(client.data.folder, info.run), origin)
    return chosen
