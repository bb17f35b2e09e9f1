"""Personalise a run at a client: train a model alone, and choose how much of it is deployed.

The own model reads texts and edges as the federation does and has the run's backbone, widths and
schedule. Nothing of it leaves the client but the losses of its mixtures with the global model.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.client.own_model import OwnModel, made_of, own_config, own_path
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.mixture import best_share, mixture_losses

LOG = logging.getLogger("flwr")


def own_model(client: Client, run: str) -> OwnModel:
    """Return the client's own model of a run, trained now unless it is stored.

    As `local-only` with the run's keys: as many rounds of as many epochs, with the running average
    of the run; the last model, so that no validation node chooses it.

    Raises
    ------
    DataError : the stored model is damaged
    """
    data, path = client.data, own_path(client.data.folder, run)
    config = own_config(client.config, data)
    origin = made_of(config, data)
    if (stored := OwnModel.read(path, origin)) is not None:
        return stored
    alone, average = Client(data, config), ModelAverage(config.ema_decay)
    shape = shape_of(data.text_dim, len(data.card.class_names), config)
    state: Mapping[str, Tensor] = initial_model(shape, config).state_dict()
    mean = arrays_of(state)
    for round_ in range(1, config.rounds + 1):
        state, _ = alone.train(state, RoundInfo(run, round_, ""))
        mean = average.add(arrays_of(state))
    LOG.info("client %d: trained its own model for %d rounds", data.card.client, config.rounds)
    model = OwnModel(state_of(mean))
    model.save(path, origin)
    return model


def own_losses(
    client: Client, state: Mapping[str, Tensor], info: RoundInfo
) -> tuple[list[int], int]:
    """Return `mixture_losses` on the client's validation nodes, and how many nodes these are.

    Parameters
    ----------
    state : the global model
    """
    model = own_model(client, info.run)
    nodes = validated_nodes(client.data, client.config)
    client.load(state)
    shared = client.predict(replace(info, final=True), nodes)["deployed"]
    own = client.own_probs(model)[nodes]
    return mixture_losses(own, shared, client.data.labels[nodes]), len(nodes)


def personalise(
    client: Client,
    state: Mapping[str, Tensor],
    info: RoundInfo,
    every: Sequence[int],
    nodes: int,
) -> OwnModel:
    """Choose the share of the client's own model and store it.

    Parameters
    ----------
    state : the global model
    every, nodes : sum of `own_losses` over the clients; empty and 0 where nobody may count
    """
    losses, _ = own_losses(client, state, info)
    chosen = replace(own_model(client, info.run), share=best_share(losses, every, nodes))
    path, config = own_path(client.data.folder, info.run), own_config(client.config, client.data)
    chosen.save(path, made_of(config, client.data))
    return chosen
