"""NeighGen of FedSage+ (Zhang et al., NeurIPS 2021): a client learns to generate neighbours."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.disk import atomic_file
from dance_flwr.methods.server_side import entries_under
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr_rivals.fedsage import FedSageConfig
from dance_flwr_rivals.fedsage.graphs import (
    GeneratedNodes,
    draw_hidden_nodes,
    impair,
    neighbour_table,
    select_generated,
)
from dance_flwr_rivals.fedsage.learning import (
    FEATURE_GENERATOR,
    ImpairedSample,
    NeighGen,
    State,
    cross_gradient,
    draw_nodes,
    step_with_peers,
    train_locally,
)
from dance_flwr_rivals.fedsage.networks import (
    FeatureGenerator,
    Widths,
    add_noise,
    load_feature_generator,
    round_counts,
)

GENERATOR = "generator.safetensors"  # state between two steps of the exchange
GENERATED = "generated.safetensors"  # generated neighbours, all that rounds need
WHOLE, TRAINING = "whole/", "training/"
_CLASSIFIER, _HIDDEN, _LATENTS, _COUNTS = "classifier/", "hidden", "latents", "counts"
_OWNERS, _FEATURES = "owners", "features"
_ROWS = 4096  # nodes whose neighbours are generated at a time


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to `path` atomically."""
    with atomic_file(path) as file:
        file.write(save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def read(path: Path, device: torch.device) -> dict[str, Tensor] | None:
    """Return the tensors at `path`, or None where the file is missing or cannot be read."""
    if not path.is_file():
        return None
    try:
        return load_file(path, device=str(device))
    except (SafetensorError, OSError):
        return None


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
    widths = Widths.of(data.text_dim, settings)
    model = NeighGen(widths, _classifier(data, config)).to(data.device)
    train_locally(model, sample, settings)
    state = _prefixed(FEATURE_GENERATOR, model.feature_generator.state_dict())
    state |= _prefixed(_CLASSIFIER, model.classifier.state_dict()) | {_HIDDEN: hidden}
    features = data.features[sample.graph.nodes]
    state |= _latents(model, features, sample.graph.operator("gcn"), settings)
    for name, graph in complete_graphs(data).items():
        latents = _latents(model, data.features, graph.operator("gcn"), settings)
        # Nodes that training must not see get no neighbours.
        latents[_COUNTS][~graph.visible] = 0
        state |= _prefixed(name, latents)
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


def generated_nodes(generated: State, name: str) -> GeneratedNodes:
    """Return the generated nodes of one complete graph from what `generate` returned."""
    return GeneratedNodes(generated[name + _OWNERS], generated[name + _FEATURES])


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
    for name in complete_graphs(data):
        # On the complete graph; on the impaired one, as in OpenFGL, hidden neighbours would count
        # twice.
        latents, counts = state[name + _LATENTS], state[name + _COUNTS]
        blocks = [
            select_generated(rows, feature_generator(add_noise(latents[rows])), counts[rows])
            for rows in torch.split(torch.nonzero(counts).flatten(), _ROWS)
        ]
        generated[name + _OWNERS] = torch.cat([block.owners for block in blocks])
        generated[name + _FEATURES] = torch.cat([block.features for block in blocks])
    return generated


def complete_graphs(data: ClientData) -> dict[str, LocalGraph]:
    """Return prefix -> graph to augment: the whole one, in inductive mode also that of training."""
    return {WHOLE: data.graph} | ({TRAINING: data.training_graph} if data.inductive else {})


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
    widths = Widths.of(data.text_dim, FedSageConfig.of(config))
    return load_feature_generator(weights, widths, config.dropout)


def _prefixed(prefix: str, state: Mapping[str, Tensor]) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}
