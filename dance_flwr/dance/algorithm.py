"""Alg. 1, client side: one round of condensing, refreshing and training. Inference is in
`inference`.

A round reads its batch of the core, K_b nodes, their neighbours and their evidence; all n nodes are
read at a core refresh only.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.ahead import Ahead, Batch
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import trained_prediction
from dance_flwr.dance.kept import keep_evidence
from dance_flwr.dance.losses import Labelled, condensed_loss, plain_loss, supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import condense_nodes, rounds_per_condensation
from dance_flwr.dance.passes import survey
from dance_flwr.dance.perturbation import laplace_like, perturb
from dance_flwr.dance.refreshing import coming_cores, core_edges, select_evidence
from dance_flwr.dance.state import ClientState, RunFolder, due
from dance_flwr.dance.topology import Edges
from dance_flwr.dance.weighing import TrainedEvidence, weigh
from dance_flwr.data.text.usage import note_evidence
from dance_flwr.evidence.explain import make_packs
from dance_flwr.evidence.pack import count_evidence, read_chunks
from dance_flwr.metrics import Report
from dance_flwr.nn.propagation import operator, trainable
from dance_flwr.nn.ragged import rows_at
from dance_flwr.nn.training import train_epochs
from dance_flwr.seeding import generator

LOG = logging.getLogger("flwr")


def train_round(
    model: DanceModel,
    data: ClientData,
    folder: RunFolder,
    config: RunConfig,
    *,
    round_: int,
    model_id: str,
) -> Report:
    """Run one round of Alg. 1 on one client; changes `model` in place.

    Node condensation and the selection of evidence, for the cores until the next one, use the model
    as the server sent it (omega^(t-1)) and run when they are due; packs are written before training
    starts. Repeating a round repeats its upload.

    Parameters
    ----------
    round_ : t, from 1
    model_id : fingerprint of omega^(t-1), recorded in the packs
    """
    report, settings = Report(), DanceConfig.of(config)
    state = _load_state(folder, data, round_)
    kept: Mapping[str, NDArray[Any]] = {}
    condensed = _core_due(state, settings, config, data, round_)
    if condensed:
        kept = _refresh_core(model, state, data, config, round_, report)
    turn, moved = _next_core(state)
    selects = condensed or _selection_due(state, settings, turn, round_)
    if selects:
        _select(model, data, state, folder, config, turn, round_, model_id, report)
    assert state.ahead is not None and state.core is not None
    batch, adjacency = state.ahead.batch(state.core, turn)
    if moved or selects:
        report.counts |= count_evidence(data, *batch)
    with report.phase("train"):
        supervised = supervised_nodes(*batch, data.train_labels, settings)
        if report.counts["condensed-nodes"]:
            report.counts["evidence-supervised"] = supervised.numel()
        report.loss = train_condensed(
            *(model, data, batch, supervised, adjacency, settings, config), round_=round_
        )
    if settings.text_refresh_every == 1:
        state.ahead, state.ahead_round = None, 0  # a repeated round selects it again
    with report.phase("packs"):
        folder.save(state, round_, kept)
    return report


def _select(
    model: DanceModel,
    data: ClientData,
    state: ClientState,
    folder: RunFolder,
    config: RunConfig,
    turn: int,
    round_: int,
    model_id: str,
    report: Report,
) -> None:
    """Select evidence and edges of the coming cores (Alg. 3 and 4), and write packs of it."""
    settings = DanceConfig.of(config)
    cores = coming_cores(state, turn, settings, round_, config.rounds)
    with report.phase("text"), torch.inference_mode():
        selected = select_evidence(model, data, state, settings, cores)
    with report.phase("topology"), torch.inference_mode():
        edges = core_edges(model, data, selected, settings, cores)
    with report.phase("packs"):
        if settings.evidence_keep == "all":
            packs = make_packs(model, data, *selected, settings, round_, model_id, state.core_round)
            packs.save(folder.round_path(round_))
            report.counts["evidence-packs"] = len(packs.nodes)
        else:
            note_evidence(folder.folder, round_, read_chunks(*selected[1:]))
    whole = len(cores) == 1 or settings.trained_evidence != "selected"
    state.ahead = Ahead.of(turn, *selected[1:], edges, whole=whole)
    state.ahead_round = round_
    if settings.text_refresh_every or not state.text_round:
        state.text_round = round_


def _load_state(folder: RunFolder, data: ClientData, round_: int) -> ClientState:
    """Return the state before `round_`; log a warning if it seems to be lost."""
    state = folder.load(data.num_nodes, data.device, before=round_)
    if folder.lost(state, round_):
        LOG.warning(
            "client %d: expected the state of a round before %d in %s, found none; either this is "
            "the client's first round, or the folder was lost: the core is selected again",
            *(data.card.client, round_, folder.folder),
        )
    return state


def _core_due(
    state: ClientState, settings: DanceConfig, config: RunConfig, data: ClientData, round_: int
) -> bool:
    """Whether nodes are condensed in `round_`."""
    every = settings.core_refresh_every
    nodes, ratio = int(data.training_graph.visible.sum()), config.condensation_ratio
    every = rounds_per_condensation(nodes, ratio, settings.batch_nodes, every)
    return due(state.core_round, every, round_)


def _selection_due(state: ClientState, settings: DanceConfig, turn: int, round_: int) -> bool:
    """Whether evidence is selected in `round_`: when it is due, and for a core without any."""
    every = settings.text_refresh_every
    ahead = state.ahead is not None and state.ahead.covers(turn)
    return every == 1 or due(state.text_round, every, round_) or not ahead


def _refresh_core(
    model: DanceModel,
    state: ClientState,
    data: ClientData,
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
        graph, settings = data.training_graph, DanceConfig.of(config)
        plain = survey(model, data, graph)
        prediction = trained_prediction(model, data, graph, settings, plain)
    with report.phase("nodes"):  # Alg. 2
        state.queue = condense_nodes(
            prediction,
            data.train_labels,
            state.times_selected,
            settings,
            config.condensation_ratio,
            generator(config.seed, "prototypes", round_=round_, client=data.card.client),
            data.training_graph.visible,
        )
    state.difficulty, state.core_round, state.turn = prediction.difficulty, round_, 0
    state.ahead = None
    with report.phase("text"):
        asked = validated_nodes(data, config)
        return keep_evidence(model, data, asked, plain.hidden, prediction.difficulty, settings)


def _next_core(state: ClientState) -> tuple[int, bool]:
    """Take the next core from the queue; return its turn, and whether it differs from the last.

    The turn of a core that never moves stays 0.
    """
    assert state.queue is not None
    turn, moved = state.turn if state.queue.moves else 0, state.turn == 0 or state.queue.moves
    state.core = state.queue.core(turn)
    state.turn += 1
    return turn, moved


def train_condensed(
    model: DanceModel,
    data: ClientData,
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
    backbone, core = model.backbone, batch[0].nodes
    count = core.numel()
    given = TrainedEvidence.of(*batch, data.table, data.label_table, settings)
    others = supervised[~torch.isin(supervised, core)]
    draws = generator(config.seed, "neighbours", round_=round_, client=data.card.client)
    ball = data.training_graph.around(
        backbone.operator,
        torch.cat([core, others]),
        backbone.hops_left,
        settings.fan_out,
        draws,
    )
    inputs = rows_at(data.inputs(data.training_graph, backbone), ball.nodes)
    labels = data.train_labels[ball.nodes[: count + others.numel()]]
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
