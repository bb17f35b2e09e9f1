"""A client's generator of missing neighbours: from its site to
`dance_flwr.methods.fedsage.neighgen` and back.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graph import TEST, VAL
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.methods.fedsage.config import FedSageConfig
from dance_flwr.methods.fedsage.neighgen.cross_gradient import cross_gradient
from dance_flwr.methods.fedsage.neighgen.impair import hidden_nodes, impair, neighbour_table
from dance_flwr.methods.fedsage.neighgen.learning import (
    MAKER,
    Lesson,
    NeighGen,
    State,
    learn_alone,
    learn_step,
    part,
    sampled,
)
from dance_flwr.methods.fedsage.neighgen.mended_graph import Generated, chosen
from dance_flwr.methods.fedsage.neighgen.networks import Widths, noisy, opened, whole_counts
from dance_flwr.nn.model import ModelShape, PlainModel

WHOLE, TRAINING = "whole/", "training/"
_JUDGE, _HIDDEN, _LATENTS, _COUNTS = "judge/", "hidden", "latents", "counts"
_ROWS = 4096  # nodes whose neighbours are made at a time


def begun(site: Site, config: RunConfig) -> State:
    """Hide nodes, let the generator learn of this client alone, freeze its encoder and dGen; return
    what goes on.

    Returns
    -------
    fGen's weights, the classifier, the hidden nodes, and z and whole counts of the impaired and the
    complete graphs
    """
    hidden = hidden_nodes(site.split == VAL, FedSageConfig.of(config).hidden_share)
    lesson = _lesson(site, config, hidden)
    model = NeighGen(_widths(site, config), _judge(site, config)).to(site.device)
    learn_alone(model, lesson, FedSageConfig.of(config))
    state = {MAKER + name: tensor for name, tensor in model.maker.state_dict().items()}
    state |= {_JUDGE + name: tensor for name, tensor in model.judge.state_dict().items()} | {
        _HIDDEN: hidden
    }
    own = site.table.nodes[lesson.impaired.nodes]
    state |= _latents(model, own, lesson.impaired.operator("gcn"), config)
    for name, graph in graphs(site).items():
        found = _latents(model, site.table.nodes, graph.operator("gcn"), config)
        found[_COUNTS][~graph.visible] = 0
        state |= {name + key: tensor for key, tensor in found.items()}
    return state


def advanced(state: State, site: Site, config: RunConfig, others: Mapping[str, Tensor]) -> State:
    """Return the state after a step of fGen; `others` are the gradients of other clients, added up."""
    with torch.device("meta"):
        judge = _judge(site, config)
    judge.load_state_dict(part(state, _JUDGE), assign=True)
    return learn_step(
        state, judge, _lesson(site, config, state[_HIDDEN]), others, FedSageConfig.of(config)
    )


def shipped(state: State, config: RunConfig) -> State:
    """Return what other clients need for their gradients: fGen's weights, z + noise and counts of a
    batch of nodes.
    """
    rows = sampled(state[_COUNTS], FedSageConfig.of(config).batch)
    return part(state, MAKER) | {
        _LATENTS: noisy(state[_LATENTS][rows]),
        _COUNTS: state[_COUNTS][rows],
    }


def visited(site: Site, config: RunConfig, inbox: Mapping[str, Tensor]) -> State:
    """Return, for each generator that came ("client-3/0.weight", ..), the gradient of its weights
    by the nodes here.
    """
    shown = site.training_graph.visible & (site.split != TEST)
    table = neighbour_table(*site.training_graph.edges(), shown, FedSageConfig.of(config).most)
    answer: State = {}
    for sender, sent in _by_sender(inbox):
        latents, counts = sent.pop(_LATENTS), sent.pop(_COUNTS)
        maker = opened(sent, _widths(site, config), config.dropout)
        found = cross_gradient(maker, latents, counts, table, site.table.nodes, site.card.clients)
        answer |= {f"{sender}/{name}": tensor for name, tensor in found.items()}
    return answer


@torch.no_grad()
def generated(state: State, site: Site, config: RunConfig) -> State:
    """Return the generated neighbours of each complete graph, "whole/owners" [g], "whole/features"
    [g, F], ..
    """
    maker = opened(part(state, MAKER), _widths(site, config), config.dropout).eval()
    made: State = {}
    for name in graphs(site):
        latents, counts = state[name + _LATENTS], state[name + _COUNTS]
        blocks = torch.split(torch.nonzero(counts).flatten(), _ROWS)
        found = [chosen(rows, maker(noisy(latents[rows])), counts[rows]) for rows in blocks]
        made[name + "owners"] = torch.cat([block.owners for block in found])
        made[name + "features"] = torch.cat([block.features for block in found])
    return made


def graphs(site: Site) -> dict[str, LocalGraph]:
    """Return the graphs that are mended, by the prefix of their names: the whole, and what training
    sees of it.
    """
    return {WHOLE: site.graph} | ({TRAINING: site.training_graph} if site.inductive else {})


def nothing_generated(site: Site) -> Generated:
    """Return no generated node."""
    return Generated(torch.zeros(0, dtype=torch.int64, device=site.device), site.table.nodes[:0])


def _lesson(site: Site, config: RunConfig, hidden: Tensor) -> Lesson:
    graph = site.training_graph
    impaired = impair(*graph.edges(), graph.visible, hidden, FedSageConfig.of(config).most)
    return Lesson(impaired, site.table.nodes, site.train_labels[impaired.nodes])


@torch.no_grad()
def _latents(model: NeighGen, features: Tensor, operator: Tensor, config: RunConfig) -> State:
    latents = model.encoder(features, operator)
    return {
        _LATENTS: latents,
        _COUNTS: whole_counts(model.counter(latents), FedSageConfig.of(config).most),
    }


def _judge(site: Site, config: RunConfig) -> PlainModel:
    shape = ModelShape(site.text_dim, config.hidden_dim, len(site.card.class_names))
    return PlainModel(shape, config.backbone, config.dropout)


def _widths(site: Site, config: RunConfig) -> Widths:
    return Widths.of(site.text_dim, FedSageConfig.of(config))


def _by_sender(inbox: Mapping[str, Tensor]) -> Iterator[tuple[str, State]]:
    for sender, keys in groupby(sorted(inbox), key=lambda key: key.partition("/")[0]):
        yield sender, {key.partition("/")[2]: inbox[key] for key in keys}
