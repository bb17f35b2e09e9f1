"""Train a client's own models after a run, and choose the share of one beside the global model.

They read texts and edges as the federation does. "alone" has the run's backbone, widths and
schedule; "tuned" is the global model after more rounds of the run's method at this client. Only the
losses of their mixtures with the global model leave the client.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.federation.averaging import ModelAverage
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.client.own_models import OwnModel, kind_config, own_path, tuning_run
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.sampling_config import SamplingConfig
from dance_flwr.nn.mixture import best_candidate, candidates, mixture_losses

LOG = logging.getLogger("flwr")
# Why (decision 30): epochs over more labelled nodes than this would cost more than the rounds.
_MAX_LABELLED, _BATCH_NODES = 4096, 1024


def own_model(client: Client, state: Mapping[str, Tensor], info: RoundInfo) -> OwnModel:
    """Return the client's own models of a run, stored or trained now."""
    kinds, path = PERSONAL[client.config.personal], own_path(client.data.folder, info.run)
    origin = _made_of(client.config, client.data, info.model_id)
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

    "alone" is `local-only` with the run's keys; "tuned" starts from the global model, with a new
    schedule and a new state of the method. It is the last model, which no validation node chose.
    """
    data, config = client.data, _training_config(client.config, kind, client.data)
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

    # Used twice: they are sent first, and choose the share when the final model arrives.
    origin = _made_of(client.config, client.data, info.model_id)
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
    every, nodes : sum of `own_losses` over the clients; empty and 0 under differential privacy
    """
    losses, _ = own_losses(client, state, info)
    kind, share = candidates(client.config.personal)[best_candidate(losses, every, nodes)]
    chosen = replace(own_model(client, state, info), kind=kind, share=share)
    origin = _made_of(client.config, client.data, info.model_id)
    chosen.save(own_path(client.data.folder, info.run), origin)
    return chosen


def _training_config(config: RunConfig, kind: str, data: ClientData) -> RunConfig:
    """Return `kind_config` for training, in batches if the client has many labels."""
    labelled = int((data.train_labels >= 0).sum())
    sampling = SamplingConfig.of(config)
    if kind == ALONE and labelled > _MAX_LABELLED and not sampling.batch_nodes:
        sampling = replace(sampling, batch_nodes=_BATCH_NODES)
    sections = tuple(sampling if type(s) is SamplingConfig else s for s in config.sections)
    return replace(kind_config(config, kind), sections=sections)


def _made_of(config: RunConfig, data: ClientData, model_id: str) -> str:
    """Return a digest of everything that determines the own models, whatever the folders."""
    settings = {key: value for key, value in flatten(config).items() if key not in FREE}
    facts = [settings, data.card.partition_sha256, data.encoder_sha256, model_id]
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
