"""Alg. 1, client side: condense, refresh, train; and inference from evidence."""

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import (
    Candidates,
    Evidence,
    Gathered,
    condense_text,
    freeze,
    select_candidates,
)
from dance_flwr.dance.losses import condensed_loss, plain_loss, supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction, condense_nodes
from dance_flwr.dance.packs import Packs, count_evidence
from dance_flwr.dance.perturbation import laplace_like, perturb
from dance_flwr.dance.state import ClientState, RunFolder, due
from dance_flwr.dance.topology import candidate_support, self_express, synthesise_adjacency
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.metrics import Report
from dance_flwr.nn.propagation import operator
from dance_flwr.nn.ragged import weighted_rows
from dance_flwr.nn.training import train_epochs
from dance_flwr.seeding import generator

LOG = logging.getLogger("flwr")
_NODES_PER_BLOCK = 1024  # gathered candidate chunks of a block: about 1024 * 6 * 8 rows of d floats


@torch.no_grad()
def plain_pass(model: DanceModel, site: Site, graph: LocalGraph) -> Prediction:
    """Run the global model once on an original local graph: g_v = z_v and p(y | v) of every node."""
    model.eval()
    hidden = model.backbone(site.table.nodes, graph.operator(model.backbone.operator))
    return Prediction(hidden, torch.softmax(model.graph_logits(hidden), dim=1))


def train_round(
    model: DanceModel,
    site: Site,
    store: RunFolder,
    config: RunConfig,
    *,
    round_: int,
    model_id: str,
) -> Report:
    """One round of Alg. 1 on one client; changes `model` in place.

    Node condensation and evidence selection use the model as it came from the server (omega^(t-1))
    and run when they are due; packs of a refresh are written before training starts. A round that
    is asked again gives the same upload.

    Parameters
    ----------
    round_ : t, from 1
    model_id : fingerprint of omega^(t-1), recorded in the packs
    """
    report, settings = Report(), DanceConfig.of(config)
    state = store.load(site.num_nodes, site.device, before=round_)
    if store.forgot(state, round_):
        LOG.warning(
            "client %d: expected what rounds before %d left in %s, found nothing; it is asked for the first time, or "
            "its folder was lost: it selects its core anew",
            *(site.card.client, round_, store.folder),
        )
    core_due = due(state.core_round, settings.core_refresh_every, round_)
    # Evidence that is selected every round is not stored: a round that is asked twice selects it
    # again.
    text_due = settings.text_refresh_every == 1 or due(
        state.text_round, settings.text_refresh_every, round_
    )
    graph = site.training_graph
    with report.phase("forward"):
        prediction = plain_pass(model, site, graph)
    if core_due:
        with report.phase("nodes"):
            draw = generator(config.seed, "prototypes", round_=round_, client=site.card.client)
            core = condense_nodes(
                prediction,
                site.train_labels,
                state.times_selected,
                settings,
                config.condensation_ratio,
                draw,
                graph.visible,
            )
            state.core, state.core_round = core, round_
            state.times_selected[core] += 1
    assert state.core is not None
    with report.phase("text"), torch.no_grad():
        candidates = _candidates(model, site, state, prediction, settings, text_due)
        state.text_round = round_ if text_due else state.text_round
        evidence = condense_text(
            model, prediction.hidden[state.core], candidates, site.table, settings
        )
    if core_due or text_due or state.adjacency is None:
        with report.phase("topology"):
            state.adjacency = core_edges(
                model, graph, state.core, prediction.hidden[state.core], evidence, settings
            )
        if settings.evidence_keep == "all":
            with report.phase("packs"):
                record = make_packs(
                    model,
                    site,
                    prediction.hidden[state.core],
                    candidates,
                    evidence,
                    round_,
                    model_id,
                )
                record.save(store.round_path(round_))
        report.counts = count_evidence(site, candidates, evidence)
    with report.phase("train"):
        supervised = supervised_nodes(candidates, evidence, site.train_labels, settings)
        if report.counts["condensed-nodes"]:
            report.counts["evidence-supervised"] = supervised.numel()
        report.loss = train_condensed(
            model, site, candidates, supervised, state.adjacency, config, round_
        )
    with report.phase("packs"):
        store.save(state, round_)
    return report


def _candidates(
    model: DanceModel,
    site: Site,
    state: ClientState,
    prediction: Prediction,
    settings: DanceConfig,
    text_due: bool,
) -> Candidates:
    """Return the candidates of the core: selected anew, or the frozen ones of the last text
    refresh.

    When the text is refreshed less than every round, evidence is selected for all nodes and frozen,
    so that a core that moves meanwhile finds its evidence.
    """
    assert state.core is not None
    always = settings.text_refresh_every == 1
    if text_due and always:
        difficulty = prediction.difficulty()
        return select_candidates(
            model,
            state.core,
            prediction.hidden,
            difficulty,
            site.training_graph.hops,
            site.table,
            settings,
        )
    if text_due:
        state.frozen = Candidates.stack(
            [
                freeze(*block)
                for block in evidence_of_all(model, site, site.training_graph, prediction, settings)
            ]
        )
    assert state.frozen is not None
    return state.frozen.take(state.core)


def core_edges(
    model: DanceModel,
    graph: LocalGraph,
    core: Tensor,
    hidden: Tensor,
    evidence: Evidence,
    settings: DanceConfig,
) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, cols, weights) of the condensed graph, as `topology_rule` says: rebuilt, induced by
    the graph, or none.
    """
    if settings.topology_rule == "self-expressive":
        return rebuild_topology(model, hidden, evidence, settings)
    if settings.topology_rule == "induced":
        return graph.induced(core)
    return core.new_empty(0), core.new_empty(0), hidden.new_empty(0)


@torch.no_grad()
def rebuild_topology(
    model: DanceModel, hidden: Tensor, evidence: Evidence, settings: DanceConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Alg. 4: (rows, cols, weights) of the adjacency on the core. `hidden`: [K, h]."""
    features = model.fuse(hidden, evidence.fused_text)
    support = candidate_support(features, evidence.text, settings.candidates)
    z = self_express(
        features, evidence.text, support, settings.alpha, settings.beta, settings.inner_iterations
    )
    return synthesise_adjacency(z, settings.neighbours)


def train_condensed(
    model: DanceModel,
    site: Site,
    candidates: Candidates,
    supervised: Tensor,
    adjacency: tuple[Tensor, Tensor, Tensor],
    config: RunConfig,
    round_: int,
) -> float:
    """Train omega on the condensed graph for `local-epochs` epochs; return the last loss.

    Parameters
    ----------
    supervised : [s] int64, the nodes of the plain term
    """
    core = candidates.nodes
    labels = site.train_labels[core]
    gathered = Gathered.of(candidates, site.table)
    original = site.training_graph.operator(model.backbone.operator)
    rows, cols, weights = adjacency
    condensed = operator(model.backbone.operator, rows, cols, weights, core.numel())
    noise = laplace_like(site.table.nodes[core], DanceConfig.of(config).feature_noise)

    def loss() -> Tensor:
        everywhere = model.backbone(site.table.nodes, original)
        hidden = everywhere[core]
        evidence = condense_text(
            model, hidden, candidates, site.table, DanceConfig.of(config), gathered
        )
        features = perturb(model.fuse(hidden, evidence.fused_text), noise)
        core_logits = model.graph_logits(model.backbone(features, condensed))
        near = neighbour_labels(model, candidates, evidence, site)
        value = condensed_loss(
            model, hidden, evidence, features, core_logits, labels, DanceConfig.of(config), near
        )
        return value + plain_loss(
            model, everywhere[supervised], site.train_labels[supervised], DanceConfig.of(config)
        )

    return train_epochs(model, loss, config, round_=round_)


@torch.no_grad()
def make_packs(
    model: DanceModel,
    site: Site,
    hidden: Tensor,
    candidates: Candidates,
    evidence: Evidence,
    round_: int,
    model_id: str,
) -> Packs:
    """Evidence packs of the candidates' nodes with the prediction Dec(x_v) that rests on them.
    `hidden`: [m, h].
    """
    near = neighbour_labels(model, candidates, evidence, site)
    probs = torch.softmax(model.fused_logits(model.fuse(hidden, evidence.fused_text), near), dim=1)
    return Packs.of(site, probs, candidates, evidence, round_, model_id)


@torch.no_grad()
def explain(
    model: DanceModel,
    site: Site,
    nodes: Tensor,
    settings: DanceConfig,
    round_: int,
    model_id: str,
    graph: LocalGraph | None = None,
) -> Packs:
    """Evidence packs of any local nodes ([m] int64) under this model: gate, select, fuse, predict.

    `graph` is the whole local graph where left out.
    """
    graph = graph or site.graph
    prediction = plain_pass(model, site, graph)
    hidden = prediction.hidden[nodes]
    found = select_candidates(
        model, nodes, prediction.hidden, prediction.difficulty(), graph.hops, site.table, settings
    )
    evidence = condense_text(model, hidden, found, site.table, settings)
    return make_packs(model, site, hidden, found, evidence, round_, model_id)


@torch.no_grad()
def predict(model: DanceModel, site: Site, settings: DanceConfig) -> dict[str, Tensor]:
    """Predict every local node from its evidence; per view, [n, C] probabilities.

    "fused" is softmax(Dec(x_v)) of the node's own pack; "core" runs the backbone on the original
    graph with features x_v; "plain" reads texts t_u without gating. "deployed" is the mean of the
    views that `dance.views` names.
    """
    prediction = plain_pass(model, site, site.graph)
    views = {"plain": prediction.probs}
    if settings.views != "plain":
        features, logits = fused_view(model, site, prediction, settings)
        views["fused"] = torch.softmax(logits, dim=1)
        core = model.backbone(features, site.graph.operator(model.backbone.operator))
        views["core"] = torch.softmax(model.graph_logits(core), dim=1)
    chosen = settings.views.split("+")
    views["deployed"] = torch.stack([views[name] for name in chosen]).mean(0)
    return views


@torch.no_grad()
def fused_view(
    model: DanceModel, site: Site, prediction: Prediction, settings: DanceConfig
) -> tuple[Tensor, Tensor]:
    """x_v, [n, d], and O = Dec(x_v), [n, C], of every local node from its evidence."""
    features, logits = [], []
    for found, evidence in evidence_of_all(model, site, site.graph, prediction, settings):
        x = model.fuse(prediction.hidden[found.nodes], evidence.fused_text)
        features.append(x)
        logits.append(model.fused_logits(x, neighbour_labels(model, found, evidence, site)))
    return torch.cat(features), torch.cat(logits)


def neighbour_labels(
    model: DanceModel, candidates: Candidates, evidence: Evidence, site: Site
) -> Tensor | None:
    """[y_1 || y_2], y_l = sum_u alpha^(l)_{v,u} onehot(y_u) over selected neighbours with a
    training label; [m, 2C].

    The node's own label is never among them, so a training node is seen as any other. None without
    label evidence.
    """
    if model.head_labels is None:
        return None
    parts = [
        weighted_rows(gate, hop, site.label_table)
        for gate, hop in zip(evidence.gates[1:], candidates.hops[1:], strict=True)
    ]
    return torch.cat(parts, dim=1)


def evidence_of_all(
    model: DanceModel, site: Site, graph: LocalGraph, prediction: Prediction, settings: DanceConfig
) -> Iterator[tuple[Candidates, Evidence]]:
    """Yield candidates and evidence of all local nodes in blocks, so that memory does not grow with
    the graph.
    """
    difficulty = prediction.difficulty()
    for nodes in torch.split(torch.arange(site.num_nodes, device=site.device), _NODES_PER_BLOCK):
        found = select_candidates(
            model, nodes, prediction.hidden, difficulty, graph.hops, site.table, settings
        )
        yield found, condense_text(model, prediction.hidden[nodes], found, site.table, settings)
