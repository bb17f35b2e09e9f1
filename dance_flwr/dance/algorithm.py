"""Alg. 1, client side: one round of condensing, refreshing and training. Inference is in
`inference`.

A round reads its batch of the core, K_b nodes, their neighbours and their evidence; all n nodes are
read at a core refresh only.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import Candidates, Evidence, condense_text, freeze, select_candidates
from dance_flwr.dance.explaining import make_packs
from dance_flwr.dance.inference import evidence_of, trained_prediction
from dance_flwr.dance.kept import keep_evidence
from dance_flwr.dance.losses import Labelled, condensed_loss, plain_loss, supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import condense_nodes, rounds_per_condensation
from dance_flwr.dance.packs import count_evidence, read_chunks
from dance_flwr.dance.passes import embed, survey
from dance_flwr.dance.perturbation import laplace_like, perturb
from dance_flwr.dance.state import ClientState, RunFolder, due
from dance_flwr.dance.topology import Edges, rebuild_topology
from dance_flwr.dance.weighing import TrainedEvidence, weigh
from dance_flwr.data.evaluated import validated_nodes
from dance_flwr.data.site import Site
from dance_flwr.data.text.usage import note_evidence
from dance_flwr.metrics import Report
from dance_flwr.nn.propagation import operator, trainable
from dance_flwr.nn.ragged import rows_at
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
    text_due = _text_due(state, settings, round_)
    kept: Mapping[str, NDArray[Any]] = {}
    if _core_due(state, settings, config, site, round_):
        kept = _refresh_core(model, state, site, config, round_, report)
    moved = _next_core(state)
    with report.phase("text"):  # Alg. 3
        batch = select_batch(model, site, state, settings, text_due=text_due)
        state.text_round = round_ if text_due else state.text_round
    if moved or state.adjacency is None:
        with report.phase("topology"):  # Alg. 4
            state.adjacency = core_edges(model, site, batch, settings)
    if moved or text_due:
        report.counts |= count_evidence(site, *batch[1:])
        with report.phase("packs"):
            if settings.evidence_keep == "all":
                packs = make_packs(
                    *(model, site, *batch, settings, round_, model_id, state.core_round)
                )
                packs.save(folder.round_path(round_))
            else:
                note_evidence(folder.folder, round_, read_chunks(*batch[1:]))
    with report.phase("train"):
        supervised = supervised_nodes(*batch[1:], site.train_labels, settings)
        if report.counts["condensed-nodes"]:
            report.counts["evidence-supervised"] = supervised.numel()
        report.loss = train_condensed(
            *(model, site, batch, supervised, state.adjacency, settings, config), round_=round_
        )
    with report.phase("packs"):
        folder.save(state, round_, kept)
    return report


# g_v of the batch's nodes, their candidates and their evidence.
Batch = tuple[Float[Tensor, "K h"], Candidates, Evidence]


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


def _core_due(
    state: ClientState, settings: DanceConfig, config: RunConfig, site: Site, round_: int
) -> bool:
    """Whether nodes are condensed in `round_`."""
    every = settings.core_refresh_every
    nodes, ratio = int(site.training_graph.visible.sum()), config.condensation_ratio
    every = rounds_per_condensation(nodes, ratio, settings.batch_nodes, every)
    return due(state.core_round, every, round_)


def _text_due(state: ClientState, settings: DanceConfig, round_: int) -> bool:
    """Whether evidence is selected in `round_`.

    Evidence that is selected in every round is not stored, so a repeated round selects it again.
    """
    every = settings.text_refresh_every
    return every == 1 or due(state.text_round, every, round_)


def _refresh_core(
    model: DanceModel,
    state: ClientState,
    site: Site,
    config: RunConfig,
    round_: int,
    report: Report,
) -> Mapping[str, NDArray[Any]]:
    """Read all n nodes, fill the queue of the next rounds, and return what validations read until
    the next time.
    """
    if state.queue is not None:
        state.times_selected[state.queue.nodes] += state.queue.times(state.turn)
    with report.phase("forward"):
        graph, settings = site.training_graph, DanceConfig.of(config)
        plain = survey(model, site, graph)
        prediction = trained_prediction(model, site, graph, settings, plain)
    with report.phase("nodes"):  # Alg. 2
        state.queue = condense_nodes(
            prediction,
            site.train_labels,
            state.times_selected,
            settings,
            config.condensation_ratio,
            generator(config.seed, "prototypes", round_=round_, client=site.card.client),
            site.training_graph.visible,
        )
    state.difficulty, state.core_round, state.turn = prediction.difficulty, round_, 0
    with report.phase("text"):
        asked = validated_nodes(site, config)
        return keep_evidence(model, site, asked, plain.hidden, prediction.difficulty, settings)


def _next_core(state: ClientState) -> bool:
    """Take the next core from the queue; return whether it differs from the one before."""
    assert state.queue is not None
    moved = state.turn == 0 or state.queue.moves
    state.core = state.queue.core(state.turn)
    state.turn += 1
    return moved


@torch.inference_mode()
def select_batch(
    model: DanceModel, site: Site, state: ClientState, settings: DanceConfig, *, text_due: bool
) -> Batch:
    """Alg. 3 for the nodes of `state.core`: selected now, or frozen at the last text refresh.

    If the text is not refreshed in every round, evidence is selected for all nodes and frozen, so
    that it also covers a core that changes before the next text refresh.
    """
    assert state.core is not None and state.difficulty is not None
    graph = site.training_graph
    hidden = embed(model, site, graph, state.core)
    if settings.text_refresh_every == 1:
        hops = graph.hops(settings.fan_out)
        candidates = select_candidates(
            model, state.core, hidden, state.difficulty, hops, site.table, settings
        )
    else:
        if text_due:
            everyone = torch.arange(site.num_nodes, device=site.device)
            everywhere = survey(model, site, graph).hidden
            blocks = evidence_of(
                model, site, graph, everyone, everywhere, state.difficulty, settings
            )
            state.frozen = Candidates.stack([freeze(*block) for block in blocks])
        assert state.frozen is not None
        candidates = state.frozen.take(state.core)
    return hidden, candidates, condense_text(model, hidden, candidates, site.table, settings)


@torch.inference_mode()
def core_edges(model: DanceModel, site: Site, batch: Batch, settings: DanceConfig) -> Edges:
    """Return the edges of the condensed graph by `topology_rule`: rebuilt, induced by the graph, or
    none.
    """
    hidden, candidates, evidence = batch
    core = candidates.nodes
    if settings.topology_rule == "self-expressive":
        labels, logits = site.train_labels[core], model.graph_logits(hidden)
        if not settings.plain_weight:  # as in `trained_prediction`
            logits = model.fused_logits(model.fuse(hidden, evidence.fused_text))
        classes = torch.where(labels >= 0, labels, logits.argmax(dim=1))
        return rebuild_topology(model, hidden, evidence, classes, settings)
    if settings.topology_rule == "induced":
        return site.training_graph.induced_edges(core)
    return core.new_empty(0), core.new_empty(0), hidden.new_empty(0)


def train_condensed(
    model: DanceModel,
    site: Site,
    batch: Batch,
    supervised: Int64[Tensor, "s"],
    adjacency: Edges,
    settings: DanceConfig,
    config: RunConfig,
    *,
    round_: int,
) -> float:
    """Train omega on the condensed graph for `local-epochs` epochs; return the last loss.

    The backbone on the original graph reads the batch, the supervised nodes and at most `fan_out`
    neighbours of each, drawn once a round; its first propagation step is precomputed.

    Parameters
    ----------
    supervised : [s] int64, the nodes of the plain term
    """
    backbone, candidates = model.backbone, batch[1]
    core, count = candidates.nodes, candidates.nodes.numel()
    given = TrainedEvidence.of(*batch[1:], site.table, site.label_table, settings)
    others = supervised[~torch.isin(supervised, core)]
    draws = generator(config.seed, "neighbours", round_=round_, client=site.card.client)
    ball = site.training_graph.around(
        backbone.operator,
        torch.cat([core, others]),
        backbone.hops_left,
        settings.fan_out,
        draws,
    )
    inputs = rows_at(site.inputs(site.training_graph, backbone), ball.nodes)
    labels = site.train_labels[ball.nodes[: count + others.numel()]]
    read, trained = Labelled.among(labels), Labelled.among(labels[:count])
    steps = [trainable(step, backbone.operator) for step in ball.operators]
    condensed = trainable(operator(backbone.operator, *adjacency, count), backbone.operator)
    width = model.fuse_graph.out_features
    noise = laplace_like(given.own.new_empty(count, width), settings.feature_noise)

    def loss() -> Tensor:
        around = backbone.finish(backbone.start(backbone.drop(inputs)), steps)
        graph, hidden = model.graph_logits(around), around[:count]
        evidence = weigh(model, hidden, given, settings)
        fused_text, text = model.read(evidence.texts).unbind(1)
        features = perturb(model.fuse_read(hidden, fused_text), noise)
        core = model.graph_logits(model.condensed_hidden(features, condensed))
        views = model.text_logits(text), model.fused_logits(features, evidence.labels), core
        value = condensed_loss(graph[:count], *views, trained, settings)
        return value + plain_loss(graph, read, settings)

    return train_epochs(model, loss, config, round_=round_)
