"""The client side of FedSage+: exchange before round 1, training on the augmented graph."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import seeded
from dance_flwr_rivals.fedsage import FedSageConfig, neighgen
from dance_flwr_rivals.fedsage.learning import State, links_of
from dance_flwr_rivals.fedsage.neighgen import GENERATED, GENERATOR, read, write
from dance_flwr_rivals.refined_graph import (
    TRAINING,
    WHOLE,
    augmented_operator,
    graphs_of,
    with_generated_nodes,
)

_LAST_STEP = "exchanged"  # the last step that the generator has taken


class FedSage(PlainMethod):
    """The plain network on each client's own augmented graph."""

    def exchange(
        self,
        data: ClientData,
        config: RunConfig,
        info: RoundInfo,
        step: int,
        inbox: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """Train alone (step 0), visit other generators (odd), or step with peer gradients (even).

        The last step generates the neighbours and writes them to the client's folder for the rounds
        that follow. A repeated step has the same answer.
        """
        # Odd steps are visits: they change nothing at this client.
        if step % 2:
            return neighgen.visit(data, config, inbox)
        settings, folder = FedSageConfig.of(config), run_folder(data.folder, info.run)
        last = step == 2 * settings.exchanges
        if step == 0:
            # Left by an earlier start of this run that was killed before its first round.
            (folder / GENERATED).unlink(missing_ok=True)
            state = neighgen.start(data, config)
        # The answer to the last step was lost, and it is asked for again.
        elif last and (folder / GENERATED).is_file():
            return {}
        else:
            state = _advance(folder / GENERATOR, data, config, step, inbox)
        if last:
            _finish(folder, state, data, config)
            return {}
        # Written before the answer: a step that is repeated finds it and is not taken twice.
        write(folder / GENERATOR, state | {_LAST_STEP: torch.tensor(step)})
        # By step, so that a repeated step is answered with the same tensors.
        with seeded(config.seed, "latents", round_=step, client=data.card.client):
            return neighgen.pack_for_peers(state, settings)

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the augmented graph."""
        report, name = Report(), TRAINING if data.inductive else WHOLE
        with report.phase("topology"):
            graph = augmented_graph(model, data, config, info, name)
        with report.phase("train"):
            report.loss = train_on_graph(model, graph, config, info.round)
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes by one pass over the augmented graph."""
        graph = augmented_graph(model, data, config, info, WHOLE)
        return {"deployed": class_probabilities(model, graph)[nodes]}


def augmented_graph(
    model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, name: str
) -> LabelledGraph:
    """Return a complete graph with the neighbours that the client generated for it in this run.

    If there are none, because the client was absent from the exchange or has lost its folder, it
    trains a generator alone. The result depends on the run's seed and not on the round.
    """
    path, kind = run_folder(data.folder, info.run) / GENERATED, model.backbone.operator
    graph = graphs_of(data)[name]
    # P = 0 is FedAvg, bit by bit.
    if not FedSageConfig.of(config).max_generated_per_node:
        nothing = torch.zeros(0, dtype=torch.int64, device=data.device)
        return _augment(model, graph, nothing, data.features[:0], data)
    # Away during the exchange, or the folder is lost: the client goes on with a generator of its
    # own.
    generated = None if path.is_file() else _generate_alone(path, data, config)
    version = (path, path.stat().st_mtime_ns, kind)

    def augment() -> LabelledGraph:
        stored = generated or read(path, data.device) or _generate_alone(path, data, config)
        owners = stored[f"{name}/{neighgen.OWNERS}"]
        return _augment(model, graph, owners, stored[f"{name}/{neighgen.FEATURES}"], data)

    return data.cached(f"fedsage {name}", version, augment)


def _augment(
    model: PlainModel, graph: LocalGraph, owners: Tensor, features: Tensor, data: ClientData
) -> LabelledGraph:
    sizes, kind = (data.num_nodes, len(owners)), model.backbone.operator
    operator = augmented_operator(kind, *graph.edges(), links_of(owners), sizes)
    return with_generated_nodes(model, data, features, operator)


def _generate_alone(path: Path, data: ClientData, config: RunConfig) -> State:
    client = data.card.client
    events.emit(
        "generator_alone",
        f"client {client}: its generator is trained without other clients",
        client=client,
    )
    # By the seed alone: the round in which it joins changes no number.
    with seeded(config.seed, "exchange", client=client):
        return _finish(path.parent, neighgen.start(data, config), data, config)


def _finish(folder: Path, state: State, data: ClientData, config: RunConfig) -> State:
    generated = neighgen.generate(state, data, config)
    write(folder / GENERATED, generated)
    # Rounds need the neighbours alone; the generator takes megabytes.
    (folder / GENERATOR).unlink(missing_ok=True)
    return generated


def _advance(
    path: Path, data: ClientData, config: RunConfig, step: int, peer_gradients: Mapping[str, Tensor]
) -> State:
    """Return the state after a step, which is not repeated if it was already taken."""
    state = read(path, data.device)
    last = int(state.pop(_LAST_STEP)) if state else None
    if state is None or last not in (step - 2, step):
        raise UserError(
            f"client {data.card.client}: expected its generator after step {step - 2} of the "
            f"exchange in {path}, found {'none' if state is None else f'that after step {last}'}; "
            "start the run again"
        )
    if last == step:
        return state
    return neighgen.advance(state, data, config, peer_gradients)
