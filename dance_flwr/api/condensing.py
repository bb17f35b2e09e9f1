"""`condense`: one graph to its core of nodes, texts and edges, by the code that clients run."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.api.bundle import Bundle
from dance_flwr.api.inputs import (
    ConfigLike,
    ModelLike,
    bundle_of,
    checked_graph,
    config_of,
    keys_of,
)
from dance_flwr.api.node_evidence import Evidence
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.reading_probe import elect
from dance_flwr.config.options import Value
from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.dance.algorithm import select_evidence
from dance_flwr.dance.config import COVERAGE, DanceConfig
from dance_flwr.dance.inference import trained_prediction
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.nodes import condense_nodes, pseudo_labels
from dance_flwr.dance.passes import DanceClient, plain_pass_in_blocks, pool_of
from dance_flwr.dance.text import condensed_text
from dance_flwr.dance.topology import core_edges
from dance_flwr.data.graphs.graph import NO_SPLIT, TRAIN, TextGraph
from dance_flwr.data.institution import relabel, write_whole
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.explain import Explainer
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.nn.moving import HOST
from dance_flwr.seeding import generator

if TYPE_CHECKING:
    from torch_geometric.data import Data

_ONE_CLASS = "unlabelled"  # of all nodes of a graph without a label


@dataclass(frozen=True)
class Core:
    """A condensed graph: K nodes of a larger graph, their texts, and new edges among them.

    Attributes
    ----------
    nodes : [K] int64 positions in the graph, ascending; ids, texts : [K] strings
    class_names : names of the classes; none of a graph without labels
    labels : [K] int64 training labels, and pseudo-labels of the other nodes; -1 without labels
    known : [K] bool, whether a label is a training label
    probabilities : [K, C] predictions of the model: soft labels
    difficulty : [K] u_v = entropy of the model's prediction, in nats
    features : [K, d] float32, the condensed text of each node in the encoder's space: chunks of
        the node and its neighbours, weighted by pi, and their context
    edge_index : [2, E] int64, both directions; edge_weight : [E] float32, above 0
    evidence : neighbours with gates and spans with weights, of each node
    stands_for : [K] number of nodes of its class that each node is most similar to among the nodes
        of the core, at least 1; None under another rule than "coverage"
    counts : numbers of condensed nodes, and of evidence neighbours, chunks and tokens
    num_nodes, num_edges, num_tokens : size of the whole graph; edges undirected, tokens of the
        encoder
    config : configuration of the condensation
    """

    nodes: Tensor
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    class_names: tuple[str, ...]
    labels: Tensor
    known: Tensor
    probabilities: Tensor
    difficulty: Tensor
    features: Tensor
    edge_index: Tensor
    edge_weight: Tensor
    evidence: Evidence
    stands_for: Tensor | None
    counts: Mapping[str, int]
    num_nodes: int
    num_edges: int
    num_tokens: int
    config: RunConfig

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def coverage(self) -> dict[str, float]:
        """The size of the core relative to the graph, in nodes, edges and tokens.

        Tokens count once for each node that reads them, so their ratio may exceed 1.
        """
        return {
            "ratio_of_nodes": len(self) / self.num_nodes,
            "ratio_of_edges": self.edge_index.size(1) / 2 / max(self.num_edges, 1),
            "ratio_of_tokens": self.counts["evidence-tokens"] / max(self.num_tokens, 1),
        }

    def to_pyg(self) -> "Data":
        """Return the core as a torch-geometric `Data`.

        `x` holds the condensed texts. They are in the space of `encode(graph)`, so a model that was
        trained on one can read the other. The other attributes are `edge_index`, `edge_weight`,
        `y`, `train_mask` (nodes with a training label), `n_id` (positions in the graph),
        `soft_labels`, and the lists `ids` and `class_names`.
        """
        from torch_geometric.data import Data

        return Data(
            x=self.features,
            edge_index=self.edge_index,
            edge_weight=self.edge_weight,
            y=self.labels,
            train_mask=self.known,
            n_id=self.nodes,
            soft_labels=self.probabilities,
            ids=list(self.ids),
            class_names=list(self.class_names),
        )

    def __repr__(self) -> str:
        edges = self.edge_index.size(1) // 2
        return (
            f"Core({len(self)} of {counted(self.num_nodes, 'node')}, {counted(edges, 'edge')}, "
            f"{int(self.known.sum())} training labels)"
        )


def condense(
    graph: TextGraph,
    *,
    ratio_of_nodes: float = 0.08,
    texts: int | None = None,
    model: ModelLike | None = None,
    config: ConfigLike = None,
    seed: int = 0,
) -> Core:
    """Condense a graph: K = ceil(r n) nodes (Alg. 2), their texts (Alg. 3) and edges (Alg. 4).

    This runs the code of a client in one round. Labels of the training split are training labels;
    in a graph without a split, all labels are. In a graph without any label the core covers all
    nodes: texts to label first, taken from the training split if there is one. The same graph, seed
    and model give the same core.

    Parameters
    ----------
    ratio_of_nodes : r, above 0 and at most 1
    texts : K, number of nodes of the core, in place of `ratio_of_nodes`
    model : model that scores and reads the nodes; None = the initial model by `seed`, as in
        round 1, which has not learnt anything, so that labels and texts decide
    config : keys such as {"dance.core-rule": "label-aware"}, the paper's score instead of facility
        location within each class (decision 7); with a model, only `dance.*` keys
    seed : seed of prototypes, initial model and samples; an integer >= 0

    Raises
    ------
    UserError : the labels of the graph are outside its training split and there is no model, the
        method is not DANCE, or the graph has classes that the model lacks

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from dance_flwr import TextGraph, condense
    >>> texts = ["stars and dust", "a red dwarf star", "leaves in autumn", "moss on an oak"]
    >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([0, 0, 1, 1]))
    >>> data.num_nodes = 4
    >>> graph = TextGraph.from_pyg(data, texts, class_names=["astronomy", "botany"])
    >>> core = condense(graph, ratio_of_nodes=0.5)
    >>> core
    Core(2 of 4 nodes, 0 edges, 2 training labels)
    >>> core.to_pyg().x.shape
    torch.Size([2, 384])
    >>> core.evidence["0"].spans[0].text
    'stars and dust'
    """
    graph = checked_graph(graph)
    ratio = _ratio(ratio_of_nodes, texts, graph)
    bundle, unlabelled = None if model is None else bundle_of(model), False
    settings = _settings(config, bundle, ratio, seed)
    if bundle:
        graph = relabel(graph, bundle.agreement.class_names)
    elif unlabelled := not (graph.labels >= 0).any():
        if DanceConfig.of(settings).rule != COVERAGE:
            raise UserError(
                f"graph: expected some labels for dance.core-rule = "
                f"{DanceConfig.of(settings).rule!r}, found none; label nodes, give a trained "
                "model, or leave out the rule"
            )
        # One class of all nodes: facility location needs no more.
        graph = replace(graph, labels=np.zeros_like(graph.labels), class_names=(_ONE_CLASS,))
    with temporary_client_data(_with_split(graph), settings) as data:
        if not bundle and not bool((data.train_labels >= 0).any()):
            raise UserError(
                "graph: expected labelled nodes in the training split, found none; label some, or "
                "give a trained model"
            )
        client = Client(data, settings)
        if bundle:
            state = bundle.weights
        else:
            shape = shape_of(data.text_dim, len(data.card.class_names), settings)
            state = initial_model(shape, settings).state_dict()
        client.load(state)
        identity = bundle.model_id if bundle else model_fingerprint(state)
        core = _condensed(cast(DanceModel, client.model), data, settings, graph, identity)
    return _without_classes(core) if unlabelled else core


def encode(graph: TextGraph, *, config: ConfigLike = None) -> Tensor:
    """Return t_v, the pooled embeddings of the text of every node; [n, d] float32.

    Embeddings are kept under `data-root`, so no text is encoded twice.

    Parameters
    ----------
    config : keys such as {"encoder": "path/of/a/model", "chunk-tokens": 128}

    Raises
    ------
    UserError : a text cannot be stored, or the encoder is missing
    """
    settings = config_of(config)
    with temporary_client_data(_with_split(checked_graph(graph)), settings) as data:
        return data.table.nodes.float().clone()


@contextmanager
def temporary_client_data(graph: TextGraph, config: RunConfig) -> Iterator[ClientData]:
    """Write a graph as the folder of one client, open it, and remove it after the block."""
    # Why a folder (decision 23): the code of a client reads its data from one.
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        folder = Path(scratch) / "client-0"
        write_whole(graph, config, folder)
        data = ClientData.of(folder, config)
        # This client alone votes on the reading.
        chosen = elect(reading := reading_of(config), data.reading_votes())
        yield data if chosen == reading else ClientData(folder, HOST, data.inductive, chosen)


def _settings(config: ConfigLike, bundle: Bundle | None, ratio: float, seed: int) -> RunConfig:
    chosen: dict[str, Value] = keys_of(config)
    fixed: dict[str, Value] = {"condensation-ratio": ratio, "seed": seed}
    # No limit, and a core that stays.
    whole: dict[str, Value] = {"dance.batch-nodes": 0, "dance.core-refresh-every": 0}
    if bundle is None:
        settings = parse(whole | chosen | fixed)
    else:
        if other := [key for key in chosen if not key.startswith("dance.")]:
            raise UserError(
                f"config: expected keys dance.* with a trained model, found "
                f"{', '.join(map(repr, other))}; leave them out: the model brings its own"
            )
        agreed = bundle.agreement
        texts: dict[str, Value] = {
            "encoder": agreed.encoder,
            "encoder-sha256": agreed.encoder_sha256,
        }
        settings = parse(flatten(bundle.config) | texts | whole | chosen | fixed)
    if settings.method != "dance":
        raise UserError(f"method: expected 'dance', which condenses, found {settings.method!r}")
    return settings


def _ratio(ratio_of_nodes: float, texts: int | None, graph: TextGraph) -> float:
    """Return r with ceil(r n) = K."""
    if texts is None:
        # True is an int in Python, but no ratio.
        is_number = isinstance(ratio_of_nodes, int | float | np.floating)
        if not is_number or ratio_of_nodes is True or not 0 < ratio_of_nodes <= 1:
            raise UserError(
                f"ratio_of_nodes: expected a number > 0 and <= 1, found {ratio_of_nodes!r}"
            )
        return float(ratio_of_nodes)
    whole = isinstance(texts, int | np.integer) and not isinstance(texts, bool)
    if not whole or not 1 <= texts <= graph.num_nodes:
        raise UserError(
            f"texts: expected a whole number from 1 to {graph.num_nodes}, the nodes of the graph, "
            f"found {texts!r}"
        )
    return int(texts) / graph.num_nodes


def _without_classes(core: Core) -> Core:
    nothing = torch.full_like(core.labels, -1)
    return replace(
        core,
        class_names=(),
        labels=nothing,
        known=nothing >= 0,
        probabilities=core.probabilities[:, :0],
    )


def _with_split(graph: TextGraph) -> TextGraph:
    if graph.split.any():
        return graph
    split: NDArray[np.uint8] = np.where(graph.labels >= 0, TRAIN, NO_SPLIT).astype(np.uint8)
    return replace(graph, split=split)


@torch.no_grad()
def _condensed(
    model: DanceModel, data: ClientData, config: RunConfig, graph: TextGraph, model_id: str
) -> Core:
    client = DanceClient(model, data, DanceConfig.of(config), data.training_graph)
    prediction = trained_prediction(client, plain_pass_in_blocks(client))
    known = data.train_labels
    times = torch.zeros(data.num_nodes, dtype=torch.int64)
    # As client 0 in round 1 of a run.
    draws = generator(config.seed, "prototypes", round_=1, client=0)
    ratio = config.condensation_ratio
    queue = condense_nodes(prediction, pool_of(client, times), client.settings, ratio, draws)
    core = queue.core(0)
    hidden, selection = select_evidence(client, core, prediction.difficulty)
    ((rows, cols, weights),) = core_edges(client, hidden, selection, core[None])
    explainer = Explainer(model, data, client.settings, 1, model_id)
    packs = explainer.packs(hidden, selection, difficulty_round=1)
    # Threshold 0: every node of the core gets a label.
    assigned = pseudo_labels(prediction, known, 0.0)[core]
    ids, names = data.ids(), data.card.class_names
    return Core(
        nodes=core,
        ids=tuple(ids[node] for node in core.tolist()),
        texts=tuple(graph.texts[node] for node in core.tolist()),
        class_names=names,
        labels=assigned,
        known=known[core] >= 0,
        probabilities=torch.tensor(packs.decisive),
        difficulty=prediction.difficulty[core],
        features=condensed_text(client, selection)[1].float(),
        edge_index=torch.stack([cols, rows]),
        edge_weight=weights,
        evidence=Evidence(packs, ids, data.texts(), names),
        stands_for=queue.mass_of(core),
        counts=selection.padded.counts(data.bank.tokens),
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_tokens=int(np.asarray(data.bank.tokens).sum()),
        config=config,
    )
