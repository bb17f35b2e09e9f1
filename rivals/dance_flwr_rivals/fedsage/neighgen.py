"""NeighGen of FedSage+ (Zhang et al., NeurIPS 2021): a client learns to generate neighbours."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.methods.server_side import entries_under
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr_rivals.fedsage import FedSageConfig
from dance_flwr_rivals.fedsage.learning import (
    FEATURE_GENERATOR,
    ImpairedSample,
    NeighGen,
    State,
    cross_gradient,
    draw_hidden_nodes,
    draw_nodes,
    impair,
    neighbour_table,
    select_generated,
    step_with_peers,
    train_locally,
)
from dance_flwr_rivals.fedsage.networks import (
    FeatureGenerator,
    add_noise,
    load_feature_generator,
    round_counts,
)
from dance_flwr_rivals.refined_graph import graphs_of

GENERATOR = "generator.npz"  # state between two steps of the exchange
GENERATED = "generated.npz"  # generated neighbours, all that rounds need
_CLASSIFIER, _HIDDEN, _LATENTS, _COUNTS = "classifier/", "hidden", "latents", "counts"
OWNERS, FEATURES = "owners", "features"
_ROWS = 4096  # nodes whose neighbours are generated at a time


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to `path` atomically."""
    write_npz(path, {name: tensor.cpu().numpy() for name, tensor in tensors.items()})


def read(path: Path, device: torch.device) -> dict[str, Tensor] | None:
    """Return the tensors at `path`, or None where the file is missing or cannot be read."""
    arrays = read_npz(path)
    if arrays is None:
        return None
    return {name: torch.as_tensor(array, device=device) for name, array in arrays.items()}


def start(data: ClientData, config: RunConfig) -> State:
    """Hide nodes, train NeighGen on this client alone and freeze the encoder and dGen.

    Returns
    -------
    fGen's weights, the classifier, the hidden nodes, and z and rounded counts of the impaired
    graph and of each complete graph
    """
    settings = FedSageConfig.of(config)
    # Validation nodes alone: hidden test nodes would be targets, and leak.
    hidden = draw_hidden_nodes(data.split == VAL, settings.hidden_ratio_of_val_nodes)
    sample = _impaired_sample(data, settings, hidden)
    model = NeighGen(data.text_dim, settings, _classifier(data, config)).to(data.device)
    train_locally(model, sample, settings)
    state = _prefixed(FEATURE_GENERATOR, model.feature_generator.state_dict())
    state |= _prefixed(_CLASSIFIER, model.classifier.state_dict()) | {_HIDDEN: hidden}
    features = data.features[sample.graph.nodes]
    state |= _latents(model, features, sample.graph.operator("gcn"), settings)
    for name, graph in graphs_of(data).items():
        latents = _latents(model, data.features, graph.operator("gcn"), settings)
        # Nodes that training must not see get no neighbours.
        latents[_COUNTS][~graph.visible] = 0
        state |= _prefixed(f"{name}/", latents)
    return state


def advance(
    state: State, data: ClientData, config: RunConfig, peer_gradients: Mapping[str, Tensor]
) -> State:
    """Return the state after a step of fGen with the summed gradients of the other clients."""
    settings = FedSageConfig.of(config)
    # No memory and no draw: the weights are replaced at once.
    with torch.device("meta"):
        classifier = _classifier(data, config)
    classifier.load_state_dict(entries_under(state, _CLASSIFIER), assign=True)
    sample = _impaired_sample(data, settings, state[_HIDDEN])
    return step_with_peers(state, classifier, sample, peer_gradients, settings)


def pack_for_peers(state: State, settings: FedSageConfig) -> State:
    """Return the tensors that other clients need for their gradients.

    Returns
    -------
    fGen's weights, and z + noise and counts of a batch of nodes
    """
    batch = draw_nodes(state[_COUNTS], settings.batch)
    return entries_under(state, FEATURE_GENERATOR) | {
        # z + noise is what fGen reads; a peer adds none of its own.
        _LATENTS: add_noise(state[_LATENTS][batch]),
        _COUNTS: state[_COUNTS][batch],
    }


def visit(data: ClientData, config: RunConfig, inbox: Mapping[str, Tensor]) -> State:
    """Return the cross gradient of each received fGen ("client-3/0.weight", ..) on local nodes."""
    settings = FedSageConfig.of(config)
    # Test nodes are no targets of other clients' generators either.
    eligible = data.training_graph.visible & (data.split != TEST)
    table = neighbour_table(*data.training_graph.edges(), eligible, settings.max_generated_per_node)
    features, clients = data.features, data.card.clients
    answer: State = {}
    for sender, keys in groupby(sorted(inbox), key=lambda key: key.partition("/")[0]):
        package = {key.partition("/")[2]: inbox[key] for key in keys}
        latents, counts = package.pop(_LATENTS), package.pop(_COUNTS)
        feature_generator = _feature_generator(package, data, config)
        gradient = cross_gradient(feature_generator, latents, counts, table, features, clients)
        answer |= _prefixed(f"{sender}/", gradient)
    return answer


@torch.no_grad()
def generate(state: State, data: ClientData, config: RunConfig) -> State:
    """Return the generated neighbours of each complete graph.

    Returns
    -------
    "whole/owners" [g] int64, "whole/features" [g, F]; in inductive mode also "training/..."
    """
    weights = entries_under(state, FEATURE_GENERATOR)
    feature_generator = _feature_generator(weights, data, config).eval()
    generated: State = {}
    for name in graphs_of(data):
        # On the complete graph; on the impaired one, as in OpenFGL, hidden neighbours would count
        # twice.
        latents, counts = state[f"{name}/{_LATENTS}"], state[f"{name}/{_COUNTS}"]
        blocks = [
            select_generated(rows, feature_generator(add_noise(latents[rows])), counts[rows])
            for rows in torch.split(torch.nonzero(counts).flatten(), _ROWS)
        ]
        owners, features = zip(*blocks, strict=True)
        generated |= {
            f"{name}/{OWNERS}": torch.cat(owners),
            f"{name}/{FEATURES}": torch.cat(features),
        }
    return generated


def _impaired_sample(data: ClientData, settings: FedSageConfig, hidden: Tensor) -> ImpairedSample:
    graph = data.training_graph
    impaired = impair(*graph.edges(), graph.visible, hidden, settings.max_generated_per_node)
    return ImpairedSample(impaired, data.features, data.train_labels[impaired.nodes])


@torch.no_grad()
def _latents(model: NeighGen, features: Tensor, operator: Tensor, settings: FedSageConfig) -> State:
    latents = model.encoder(features, operator)
    return {
        _LATENTS: latents,
        _COUNTS: round_counts(model.degree_generator(latents), settings.max_generated_per_node),
    }


def _classifier(data: ClientData, config: RunConfig) -> PlainModel:
    # It reads no labels, with or without label-reuse: it is never averaged or deployed.
    shape = ModelShape(data.text_dim, config.hidden_dim, len(data.card.class_names))
    return PlainModel(shape, config.backbone, config.dropout)


def _feature_generator(
    weights: Mapping[str, Tensor], data: ClientData, config: RunConfig
) -> FeatureGenerator:
    settings = FedSageConfig.of(config)
    return load_feature_generator(weights, data.text_dim, settings, config.dropout)


def _prefixed(prefix: str, state: Mapping[str, Tensor]) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}
