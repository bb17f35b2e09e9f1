"""NeighGen at a client: from its site to `dance_flwr.baselines.fedsage.neighgen` and back."""

from collections.abc import Iterator, Mapping
from itertools import groupby

import torch
from torch import Tensor

from dance_flwr.baselines.fedsage.config import FedSageConfig
from dance_flwr.baselines.fedsage.neighgen.augmented_graph import GeneratedNodes, select_generated
from dance_flwr.baselines.fedsage.neighgen.cross_gradient import cross_gradient
from dance_flwr.baselines.fedsage.neighgen.impair import draw_hidden_nodes, impair, neighbour_table
from dance_flwr.baselines.fedsage.neighgen.learning import (
    FEATURE_GENERATOR,
    ImpairedSample,
    NeighGen,
    State,
    draw_nodes,
    step_with_peers,
    train_locally,
)
from dance_flwr.baselines.fedsage.neighgen.networks import (
    FeatureGenerator,
    Widths,
    add_noise,
    load_feature_generator,
    round_counts,
)
from dance_flwr.client_data.client_data import Site
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.methods.by_client import entries_under
from dance_flwr.nn.model import ModelShape, PlainModel

WHOLE, TRAINING = "whole/", "training/"
_CLASSIFIER, _HIDDEN, _LATENTS, _COUNTS = "classifier/", "hidden", "latents", "counts"
_OWNERS, _FEATURES = "owners", "features"
_ROWS = 4096  # nodes whose neighbours are generated at a time


def start(site: Site, config: RunConfig) -> State:
    """Hide nodes, train NeighGen on this client alone and freeze the encoder and dGen.

    Returns
    -------
    fGen's weights, the classifier, the hidden nodes, and z and rounded counts of the impaired
    graph and of each complete graph
    """
    settings = FedSageConfig.of(config)
    hidden = draw_hidden_nodes(site.split == VAL, settings.hidden_share)
    sample = _impaired_sample(site, settings, hidden)
    model = NeighGen(_widths(site, settings), _classifier(site, config)).to(site.device)
    train_locally(model, sample, settings)
    state = _prefixed(FEATURE_GENERATOR, model.feature_generator.state_dict())
    state |= _prefixed(_CLASSIFIER, model.classifier.state_dict()) | {_HIDDEN: hidden}
    features = site.features[sample.graph.nodes]
    state |= _latents(model, features, sample.graph.operator("gcn"), settings)
    for name, graph in complete_graphs(site).items():
        latents = _latents(model, site.features, graph.operator("gcn"), settings)
        latents[_COUNTS][~graph.visible] = 0
        state |= _prefixed(name, latents)
    return state


def advance(
    state: State, site: Site, config: RunConfig, peer_gradients: Mapping[str, Tensor]
) -> State:
    """Return the state after a step of fGen with the summed gradients of the other clients."""
    settings = FedSageConfig.of(config)
    with torch.device("meta"):
        classifier = _classifier(site, config)
    classifier.load_state_dict(entries_under(state, _CLASSIFIER), assign=True)
    sample = _impaired_sample(site, settings, state[_HIDDEN])
    return step_with_peers(state, classifier, sample, peer_gradients, settings)


def pack_for_peers(state: State, settings: FedSageConfig) -> State:
    """Return what other clients need for their gradients.

    Returns
    -------
    fGen's weights, and z + noise and counts of a batch of nodes
    """
    batch = draw_nodes(state[_COUNTS], settings.batch)
    return entries_under(state, FEATURE_GENERATOR) | {
        _LATENTS: add_noise(state[_LATENTS][batch]),
        _COUNTS: state[_COUNTS][batch],
    }


def visit(site: Site, config: RunConfig, inbox: Mapping[str, Tensor]) -> State:
    """Return the cross gradient of each received fGen ("client-3/0.weight", ..) on local nodes."""
    settings = FedSageConfig.of(config)
    eligible = site.training_graph.visible & (site.split != TEST)
    table = neighbour_table(*site.training_graph.edges(), eligible, settings.most)
    features, clients = site.features, site.card.clients
    answer: State = {}
    for sender, package in _by_sender(inbox):
        latents, counts = package.pop(_LATENTS), package.pop(_COUNTS)
        feature_generator = _feature_generator(package, site, config)
        gradient = cross_gradient(feature_generator, latents, counts, table, features, clients)
        answer |= _prefixed(f"{sender}/", gradient)
    return answer


@torch.no_grad()
def generate(state: State, site: Site, config: RunConfig) -> State:
    """Return the generated neighbours of each complete graph.

    Returns
    -------
    "whole/owners" [g] int64, "whole/features" [g, F]; for an inductive site also "training/..."
    """
    weights = entries_under(state, FEATURE_GENERATOR)
    feature_generator = _feature_generator(weights, site, config).eval()
    generated: State = {}
    for name in complete_graphs(site):
        latents, counts = state[name + _LATENTS], state[name + _COUNTS]
        blocks = [
            select_generated(rows, feature_generator(add_noise(latents[rows])), counts[rows])
            for rows in torch.split(torch.nonzero(counts).flatten(), _ROWS)
        ]
        generated[name + _OWNERS] = torch.cat([block.owners for block in blocks])
        generated[name + _FEATURES] = torch.cat([block.features for block in blocks])
    return generated


def generated_nodes(generated: State, name: str) -> GeneratedNodes:
    """Return the generated nodes of one complete graph from what `generate` returned.

    Parameters
    ----------
    name : a key of `complete_graphs`
    """
    return GeneratedNodes(generated[name + _OWNERS], generated[name + _FEATURES])


def no_generated_nodes(site: Site) -> GeneratedNodes:
    """Return zero generated nodes."""
    owners = torch.zeros(0, dtype=torch.int64, device=site.device)
    return GeneratedNodes(owners, site.features[:0])


def complete_graphs(site: Site) -> dict[str, LocalGraph]:
    """Return prefix -> graph to augment: the whole graph, inductively also the training graph."""
    return {WHOLE: site.graph} | ({TRAINING: site.training_graph} if site.inductive else {})


def _impaired_sample(site: Site, settings: FedSageConfig, hidden: Tensor) -> ImpairedSample:
    graph = site.training_graph
    impaired = impair(*graph.edges(), graph.visible, hidden, settings.most)
    return ImpairedSample(impaired, site.features, site.train_labels[impaired.nodes])


@torch.no_grad()
def _latents(model: NeighGen, features: Tensor, operator: Tensor, settings: FedSageConfig) -> State:
    latents = model.encoder(features, operator)
    return {
        _LATENTS: latents,
        _COUNTS: round_counts(model.degree_generator(latents), settings.most),
    }


def _classifier(site: Site, config: RunConfig) -> PlainModel:
    # It reads no labels, with or without label-reuse: it is never averaged or deployed.
    shape = ModelShape(site.text_dim, config.hidden_dim, len(site.card.class_names))
    return PlainModel(shape, config.backbone, config.dropout)


def _feature_generator(
    weights: Mapping[str, Tensor], site: Site, config: RunConfig
) -> FeatureGenerator:
    widths = _widths(site, FedSageConfig.of(config))
    return load_feature_generator(weights, widths, config.dropout)


def _widths(site: Site, settings: FedSageConfig) -> Widths:
    return Widths.of(site.text_dim, settings)


def _prefixed(prefix: str, state: Mapping[str, Tensor]) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def _by_sender(inbox: Mapping[str, Tensor]) -> Iterator[tuple[str, State]]:
    for sender, keys in groupby(sorted(inbox), key=lambda key: key.partition("/")[0]):
        yield sender, {key.partition("/")[2]: inbox[key] for key in keys}
