"""The client side of FedSage+: exchange before round 1, training on the augmented graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.baselines.fedsage import neighgen_client
from dance_flwr.baselines.fedsage.config import FedSageConfig
from dance_flwr.baselines.fedsage.neighgen.augmented_graph import GeneratedNodes, augmented_operator
from dance_flwr.baselines.fedsage.neighgen.files import GENERATED, GENERATOR, read, write
from dance_flwr.baselines.fedsage.neighgen.learning import State
from dance_flwr.baselines.fedsage.neighgen_client import TRAINING, WHOLE, complete_graphs
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.methods.plain_method import PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import seeded

_LAST_STEP = "exchanged"  # the last step that the generator has taken


@dataclass(frozen=True)
class AugmentedGraph:
    """A complete graph whose n nodes are followed by their g generated neighbours.

    Attributes
    ----------
    features : [n + g, F]
    operator : [n + g, n + g] sparse, of the backbone's kind
    """

    features: Tensor
    operator: Tensor


# Per site and complete graph: the last augmented graph, with the version of the file behind it.
_AUGMENTED: WeakKeyDictionary[ClientData, dict[str, tuple[object, AugmentedGraph]]] = (
    WeakKeyDictionary()
)


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

        The last step generates the neighbours; the file it leaves in the client's folder is all
        that rounds need. A step that is repeated is answered with the same tensors.

        Raises
        ------
        UserError : the generator of the step before is not in the client's folder
        """
        if step % 2:
            return neighgen_client.visit(data, config, inbox)
        settings, folder = FedSageConfig.of(config), run_folder(data.folder, info.run)
        last = step == 2 * settings.exchanges
        if step == 0:
            # Left by an earlier start of this run that was killed before its first round.
            (folder / GENERATED).unlink(missing_ok=True)
            state = neighgen_client.start(data, config)
        elif last and (folder / GENERATED).is_file():
            return {}
        else:
            state = _advance(folder / GENERATOR, data, config, step, inbox)
        if last:
            _finish(folder, state, data, config)
            return {}
        write(folder / GENERATOR, state | {_LAST_STEP: torch.tensor(step)})
        with seeded(config.seed, "latents", round_=step, client=data.card.client):
            return neighgen_client.pack_for_peers(state, settings)

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the augmented graph."""
        report, name = Report(), TRAINING if data.inductive else WHOLE
        with report.phase("topology"):
            graph = augmented_graph(model, data, config, info, name)
        with report.phase("train"):
            report.loss = train_on_graph(
                model,
                graph.features,
                graph.operator,
                _labels_of(graph, data),
                config,
                info.round,
                data.card.client,
            )
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes by one pass over the augmented graph."""
        graph = augmented_graph(model, data, config, info, WHOLE)
        shown = input_labels(model, _labels_of(graph, data))
        probabilities = class_probabilities(model, graph.features, graph.operator, shown)
        return {"deployed": probabilities[nodes]}


def augmented_graph(
    model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, name: str
) -> AugmentedGraph:
    """Return a complete graph with the neighbours that the client generated for it in this run.

    A client without any, because it was away during the exchange or has lost its folder, trains
    its generator again, alone. The result depends on the run's seed only, not on the round.

    Parameters
    ----------
    name : a key of `complete_graphs`
    """
    path, kind = run_folder(data.folder, info.run) / GENERATED, model.backbone.operator
    graph = complete_graphs(data)[name]
    if not FedSageConfig.of(config).max_generated_per_node:
        return _augment(graph, neighgen_client.no_generated_nodes(data), data, kind)
    generated = None if path.is_file() else _generate_alone(path, data, config)
    version = (path, path.stat().st_mtime_ns, kind)
    cached = _AUGMENTED.setdefault(data, {})
    if name not in cached or cached[name][0] != version:
        generated = generated or read(path, data.device) or _generate_alone(path, data, config)
        nodes = neighgen_client.generated_nodes(generated, name)
        cached[name] = (version, _augment(graph, nodes, data, kind))
    return cached[name][1]


def _labels_of(graph: AugmentedGraph, data: ClientData) -> Tensor:
    """Return the training labels, [n + g] int64; generated nodes have none."""
    labels = data.train_labels.new_full((len(graph.features),), -1)
    labels[: data.num_nodes] = data.train_labels
    return labels


def _augment(
    graph: LocalGraph, added: GeneratedNodes, data: ClientData, kind: str
) -> AugmentedGraph:
    operator = augmented_operator(kind, *graph.edges(), added.owners, data.num_nodes)
    return AugmentedGraph(torch.cat([data.features, added.features]), operator)


def _generate_alone(path: Path, data: ClientData, config: RunConfig) -> State:
    client = data.card.client
    events.emit(
        "generator_alone",
        f"client {client}: its generator is trained without other clients",
        client=client,
    )
    with seeded(config.seed, "exchange", client=client):
        return _finish(path.parent, neighgen_client.start(data, config), data, config)


def _finish(folder: Path, state: State, data: ClientData, config: RunConfig) -> State:
    """Generate the neighbours, write them and delete the generator."""
    generated = neighgen_client.generate(state, data, config)
    write(folder / GENERATED, generated)
    (folder / GENERATOR).unlink(missing_ok=True)
    return generated


def _advance(
    path: Path, data: ClientData, config: RunConfig, step: int, peer_gradients: Mapping[str, Tensor]
) -> State:
    """Return the state after a step; a step that was already taken is not repeated."""
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
    return neighgen_client.advance(state, data, config, peer_gradients)
