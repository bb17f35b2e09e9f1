"""`load`, `Predictor` and `explain`: predictions and evidence of new nodes, by a bundle's model."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dance_flwr.api.bundle import Bundle
from dance_flwr.api.inputs import GraphLike, ModelLike, Nodes, bundle_of, rows_of, source_of
from dance_flwr.api.node_evidence import Evidence
from dance_flwr.data.card import CARD
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, UNLABELLED, TextGraph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.institution import make_folder
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.render import render
from dance_flwr.federation.client.client import Client
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.evidence import explainer_of

Log = Callable[[str], None]


@contextmanager
def open_data(bundle: Bundle, data: str | TextGraph, log: Log) -> Iterator[Client]:
    """Open the folder of a client, or a temporary one made from a graph, with the bundle's model.

    Parameters
    ----------
    data : folder of a client; or a graph, its name or its folder, without reading its labels
    """
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        if isinstance(data, str) and (Path(data) / CARD).is_file():
            yield bundle.client(Path(data), Path(scratch) / "derived")
            return
        graph = load_graph(data) if isinstance(data, str) else data
        folder = Path(scratch) / "client-0"
        # A prediction must not use the labels that it is compared with.
        bare = replace(
            graph,
            class_names=(),
            labels=np.full_like(graph.labels, UNLABELLED),
            split=np.full_like(graph.split, NO_SPLIT),
        )
        make_folder(bare, bundle.agreement, 0, 1, folder, log=log)
        yield bundle.client(folder)


def bundle_explainer(bundle: Bundle, client: Client) -> Explainer:
    """Return the explainer of the bundle's model for a client's data."""
    round_ = int(bundle.facts["best_round"])
    return explainer_of(client, round_, bundle.model_id, bundle.calibration)


def show_node(bundle: Bundle, data: str, node: str, log: Log) -> str:
    """Return the evidence pack of any node of a graph, or of a client's folder, as text."""
    with open_data(bundle, data, log) as client:
        ids = client.data.ids()
        if node not in ids:
            raise UserError(f"--node: expected the id of a node of {data}, found {node!r}")
        packs = bundle_explainer(bundle, client).explain(torch.tensor([ids.index(node)]))
        return render(client.data, packs, 0)


def known_labels(data: str, client: Client) -> tuple[str, Tensor, Counter[str]]:
    """Return the labels that predictions can be compared with, and what kind of nodes have them.

    These are the labels of the test nodes in a client's folder, and in a graph those of all classes
    that the model knows.

    Returns
    -------
    "test" or "labelled"; [n] int64 labels, -1 = unknown; counts of labelled nodes by classes that
    the model lacks
    """
    if (Path(data) / CARD).is_file():
        return "test", torch.where(client.data.split == TEST, client.data.labels, -1), Counter()
    graph = load_graph(data)
    number_of = {name: k for k, name in enumerate(client.data.card.class_names)}
    # The last entry is for nodes without a label, whose number is -1.
    numbers = np.array([*(number_of.get(name, -1) for name in graph.class_names), -1])
    labels = numbers[graph.labels]
    lacking = graph.labels[(graph.labels >= 0) & (labels < 0)]
    return (
        "labelled",
        torch.as_tensor(labels),
        Counter(graph.class_names[k] for k in lacking.tolist()),
    )


def explain(model: ModelLike, graph: GraphLike, nodes: Nodes) -> Evidence:
    """Return the evidence of nodes: neighbours with gates, and text spans with weights.

    `dance-flwr predict --evidence` writes the same for the same data.

    Parameters
    ----------
    model : what `load` or `federate` return, or the folder of a bundle
    graph : a graph, its name or its folder (its labels are not read), or the folder of a client
        (its training labels are used as in the run)
    nodes : ids, places from 0, or one bool per node

    Raises
    ------
    UserError : the model keeps no evidence, a node is unknown, or the data do not fit the model
    """
    bundle, data = bundle_of(model), source_of(graph)
    method = bundle.config.method
    if not get_spec(method).keeps_evidence:
        raise UserError(
            f"model: expected one of a method that keeps evidence (dance), found {method!r}"
        )
    with open_data(bundle, data, lambda line: None) as client:
        ids = client.data.ids()
        rows = torch.as_tensor(rows_of(nodes, ids))
        packs = bundle_explainer(bundle, client).explain(rows)
        return Evidence(packs, ids, client.data.texts(), client.data.card.class_names)


class Prediction(NamedTuple):
    """The prediction for one node: its id, class, calibrated probability and margin."""

    id: str
    predicted: str
    probability: float
    margin: float


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """Predictions of n nodes, in the order of the graph.

    Attributes
    ----------
    ids : node ids
    class_names : of the model, columns of `probabilities`
    probabilities : [n, C], calibrated; rows sum to 1
    labels : [n] int64, predicted classes
    probability : [n] probability of the predicted class
    margin : [n] difference from the probability of the second class
    """

    ids: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Tensor
    labels: Tensor
    probability: Tensor
    margin: Tensor

    @property
    def predicted(self) -> list[str]:
        """The name of each node's predicted class."""
        return [self.class_names[label] for label in self.labels.tolist()]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: Any) -> Any:
        """Return one `Prediction` by its position, or several by a slice."""
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        name = self.class_names[int(self.labels[row])]
        return Prediction(
            self.ids[row], name, float(self.probability[row]), float(self.margin[row])
        )

    def __iter__(self) -> Iterator[Prediction]:
        # By columns, as reading single numbers of tensors takes seconds for a million nodes.
        return (Prediction(*row) for row in zip(*self.to_dict().values(), strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of the table that `dance-flwr predict` writes.

        `pandas.DataFrame(predictions.to_dict())` makes a frame.
        """
        return {
            "id": list(self.ids),
            "predicted": self.predicted,
            "probability": self.probability.tolist(),
            "margin": self.margin.tolist(),
        }

    def __repr__(self) -> str:
        return (
            f"Predictions({counted(len(self), 'node')}, "
            f"{counted(len(self.class_names), 'class', 'classes')})"
        )


@torch.no_grad()
def predict_all(bundle: Bundle, client: Client) -> Predictions:
    """Predict every node of a client with the model of a bundle."""
    info = RoundInfo("predict", int(bundle.facts["best_round"]), bundle.model_id, final=True)
    probs = client.predict(info, torch.arange(client.data.num_nodes))["deployed"]
    probs = bundle.calibration.apply(probs)
    best = probs.topk(min(2, probs.size(1)), dim=1)
    top, names = best.values[:, 0], tuple(client.data.card.class_names)
    margin = top - best.values[:, -1]
    return Predictions(client.data.ids(), names, probs, best.indices[:, 0], top, margin)


class Predictor:
    """An exported model, ready to predict and to explain; `load` opens one.

    Attributes
    ----------
    bundle : the model, its configuration, classes, encoder and calibration
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.bundle.agreement.class_names

    @property
    def model_id(self) -> str:
        """Fingerprint of the model."""
        return self.bundle.model_id

    def predict(self, graph: GraphLike) -> Predictions:
        """Predict every node of a graph, as `dance-flwr predict` does.

        Parameters
        ----------
        graph : a graph, its name or its folder (its labels are not read), or the folder of a
            client (its training labels are used as in the run)

        Raises
        ------
        UserError : the data do not fit the model: other encoder, classes or chunks
        """
        with open_data(self.bundle, source_of(graph), lambda line: None) as client:
            return predict_all(self.bundle, client)

    def explain(self, graph: GraphLike, nodes: Nodes) -> Evidence:
        """Return the evidence of these nodes; see `dance_flwr.api.explain`."""
        return explain(self, graph, nodes)

    def __repr__(self) -> str:
        accuracy = self.bundle.facts.get("test_accuracy")
        score = "not measured" if accuracy is None else f"{accuracy:.4f}"
        method, count = self.bundle.config.method, len(self.class_names)
        return f"Predictor({method}, {count} classes, test accuracy {score}, model {self.model_id})"


def load(bundle: str | Path) -> Predictor:
    """Return the model of a bundle, the folder that `dance-flwr export` or `Result.export` wrote.

    Raises
    ------
    UserError : there is no bundle, or it is damaged or of another version

    Examples
    --------
    >>> from dance_flwr import load
    >>> load("no/such/bundle")
    Traceback (most recent call last):
        ...
    dance_flwr.errors.UserError: expected a bundle with bundle.json, found none at ...
    """
    return Predictor(bundle_of(bundle))
