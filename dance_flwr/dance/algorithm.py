"""Alg. 1, client side: one round of condensing, refreshing and training. Inference is in
`inference`.
"""

import logging

import torch
from jaxtyping import Int64
from torch import Tensor

from dance_flwr.config.sections import TrainingConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import (
    Candidates,
    CandidateVectors,
    Evidence,
    condense_text,
    freeze,
    select_candidates,
)
from dance_flwr.dance.inference import evidence_of_all, label_evidence, make_packs, plain_pass
from dance_flwr.dance.losses import condensed_loss, plain_loss, supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import Prediction, condense_nodes
from dance_flwr.dance.packs import count_evidence
from dance_flwr.dance.perturbation import laplace_like, perturb
from dance_flwr.dance.state import ClientState, RunFolder, due
from dance_flwr.dance.topology import Edges, rebuild_topology
from dance_flwr.data.site import LocalGraph, Site
from dance_flwr.metrics import Report
from dance_flwr.nn.propagation import operator
from dance_flwr.nn.training import train_epochs
from dance_flwr.seeding import generator

LOG = logging.getLogger("flwr")


def train_round(
    model: DanceModel,
    site: Site,
    folder: RunFolder,
    config: RunConfig,
    *,
    round_: int,
    model_id: str,
) -> Report:
    """Run one round of Alg. 1 on one client; changes `model` in place.

    Node condensation and evidence selection use the model as the server sent it (omega^(t-1)) and
    run when they are due; packs of a refresh are written before training starts. Repeating a round
    repeats its upload.

    Parameters
    ----------
    round_ : t, from 1
    model_id : fingerprint of omega^(t-1), recorded in the packs
    """
    report, settings = Report(), DanceConfig.of(config)
    state = _load_state(folder, site, round_)
    core_due = due(state.core_round, settings.core_refresh_every, round_)
    text_due = _text_due(state, settings, round_)
    graph = site.training_graph
    with report.phase("forward"):
        prediction = plain_pass(model, site, graph)
    if core_due:
        with report.phase("nodes"):  # Alg. 2
            _refresh_core(state, prediction, site, config, round_)
    assert state.core is not None
    hidden = prediction.hidden[state.core]
    with report.phase("text"), torch.no_grad():  # Alg. 3
        candidates = _candidates(model, site, state, prediction, settings, text_due)
        state.text_round = round_ if text_due else state.text_round
        evidence = condense_text(model, hidden, candidates, site.table, settings)
    if core_due or text_due or state.adjacency is None:
        with report.phase("topology"):  # Alg. 4
            state.adjacency = core_edges(model, graph, state.core, hidden, evidence, settings)
        if settings.evidence_keep == "all":
            with report.phase("packs"):
                packs = make_packs(model, site, hidden, candidates, evidence, round_, model_id)
                packs.save(folder.round_path(round_))
        report.counts = count_evidence(site, candidates, evidence)
    with report.phase("train"):
        supervised = supervised_nodes(candidates, evidence, site.train_labels, settings)
        if report.counts["condensed-nodes"]:
            report.counts["evidence-supervised"] = supervised.numel()
        report.loss = train_condensed(
            *(model, site, candidates, supervised, state.adjacency, settings, config),
            round_=round_,
        )
    with report.phase("packs"):
        folder.save(state, round_)
    return report


def _load_state(folder: RunFolder, site: Site, round_: int) -> ClientState:
    """Return the state before `round_`; log a warning if it seems to be lost."""
    state = folder.load(site.num_nodes, site.device, before=round_)
    if folder.lost(state, round_):
        LOG.warning(
            "client %d: expected the state of a round before %d in %s, found none; either this is "
            "the client's first round, or the folder was lost: the core is selected again",
            *(site.card.client, round_, folder.folder),
        )
    return state


def _text_due(state: ClientState, settings: DanceConfig, round_: int) -> bool:
    """Whether evidence is selected in `round_`.

    Evidence that is selected in every round is not stored, so a repeated round selects it again.
    """
    every = settings.text_refresh_every
    return every == 1 or due(state.text_round, every, round_)


def _refresh_core(
    state: ClientState, prediction: Prediction, site: Site, config: RunConfig, round_: int
) -> None:
    core = condense_nodes(
        prediction,
        site.train_labels,
        state.times_selected,
        DanceConfig.of(config),
        config.condensation_ratio,
        generator(config.seed, "prototypes", round_=round_, client=site.card.client),
        site.training_graph.visible,
    )
    state.core, state.core_round = core, round_
    state.times_selected[core] += 1


def _candidates(
    model: DanceModel,
    site: Site,
    state: ClientState,
    prediction: Prediction,
    settings: DanceConfig,
    text_due: bool,
) -> Candidates:
    """Return the candidates of the core: selected now, or frozen at the last text refresh.

    If the text is not refreshed in every round, evidence is selected for all nodes and frozen, so
    that it also covers a core that changes before the next text refresh.
    """
    assert state.core is not None
    graph = site.training_graph
    if text_due and settings.text_refresh_every == 1:
        difficulty = prediction.difficulty()
        return select_candidates(
            *(model, state.core, prediction.hidden, difficulty, graph.hops, site.table, settings)
        )
    if text_due:
        blocks = evidence_of_all(model, site, graph, prediction, settings)
        state.frozen = Candidates.stack([freeze(*block) for block in blocks])
    assert state.frozen is not None
    return state.frozen.take(state.core)


def core_edges(
    model: DanceModel,
    graph: LocalGraph,
    core: Int64[Tensor, "K"],
    hidden: Tensor,
    evidence: Evidence,
    settings: DanceConfig,
) -> Edges:
    """Return the edges of the condensed graph by `topology_rule`: rebuilt, induced by the graph, or
    none.
    """
    if settings.topology_rule == "self-expressive":
        return rebuild_topology(model, hidden, evidence, settings)
    if settings.topology_rule == "induced":
        return graph.induced_edges(core)
    return core.new_empty(0), core.new_empty(0), hidden.new_empty(0)


def train_condensed(
    model: DanceModel,
    site: Site,
    candidates: Candidates,
    supervised: Int64[Tensor, "s"],
    adjacency: Edges,
    settings: DanceConfig,
    training: TrainingConfig,
    *,
    round_: int,
) -> float:
    """Train omega on the condensed graph for `local-epochs` epochs; return the last loss.

    Parameters
    ----------
    supervised : [s] int64, the nodes of the plain term
    """
    core, table = candidates.nodes, site.table
    labels = site.train_labels[core]
    vectors = CandidateVectors.of(candidates, table)
    original = site.training_graph.operator(model.backbone.operator)
    rows, cols, weights = adjacency
    condensed = operator(model.backbone.operator, rows, cols, weights, core.numel())
    noise = laplace_like(table.nodes[core], settings.feature_noise)

    def loss() -> Tensor:
        everywhere = model.backbone(table.nodes, original)
        hidden = everywhere[core]
        evidence = condense_text(model, hidden, candidates, table, settings, vectors)
        features = perturb(model.fuse(hidden, evidence.fused_text), noise)
        core_logits = model.graph_logits(model.backbone(features, condensed))
        near = label_evidence(model, candidates, evidence, site)
        value = condensed_loss(
            model, hidden, evidence, features, core_logits, labels, settings, near
        )
        return value + plain_loss(
            model, everywhere[supervised], site.train_labels[supervised], settings
        )

    return train_epochs(model, loss, training, round_=round_)
