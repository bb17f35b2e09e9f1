"""`load`, `Predictor` and `explain`: labels of nodes that no client ever saw, with evidence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from dance_flwr.api.inputs import GraphLike, ModelLike, Nodes, bundle_of, rows_of, source_of
from dance_flwr.api.node_evidence import Evidence
from dance_flwr.api.notebook import table_html
from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.predicting import best_class, explainer_of, open_data, predict_proba
from dance_flwr.errors import UserError, counted
from dance_flwr.methods import get_spec

if TYPE_CHECKING:
    from dance_flwr.api.graph_model import GraphModel


def explain(model: ModelLike, graph: GraphLike, nodes: Nodes) -> Evidence:
    """Return the evidence of nodes: neighbours with gates, and spans of their texts with weights.

    Equal to what `dance-flwr predict --evidence` writes of the same data.

    Parameters
    ----------
    model : what `load` or `federate` return, or the folder of a bundle
    graph : a graph, its name or its folder, whose labels are not read; or the folder of a client,
        whose training labels count as in the run
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
        packs = explainer_of(bundle, client).explain(rows)
        return Evidence(packs, ids, client.data.texts(), client.data.card.class_names)


class Prediction(NamedTuple):
    """What is predicted of one node: its id, class, calibrated probability and margin."""

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
    labels : [n] int64, predicted class
    probability : [n], of that class
    margin : [n], its distance to the probability of the second class
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
        """Return one `Prediction` by its place, or several by a slice."""
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        name = self.class_names[int(self.labels[row])]
        return Prediction(
            self.ids[row], name, float(self.probability[row]), float(self.margin[row])
        )

    def __iter__(self) -> Iterator[Prediction]:
        parts = (self.ids, self.predicted, self.probability.tolist(), self.margin.tolist())
        return (Prediction(*row) for row in zip(*parts, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of the table that `dance-flwr predict` writes.

        `pandas.DataFrame(predictions.to_dict())` makes a frame.
        """
        columns: dict[str, list[Any]] = {"id": list(self.ids), "predicted": self.predicted}
        columns |= {"probability": self.probability.tolist(), "margin": self.margin.tolist()}
        return columns

    def __repr__(self) -> str:
        return (
            f"Predictions({counted(len(self), 'node')}, "
            f"{counted(len(self.class_names), 'class', 'classes')})"
        )

    def _repr_html_(self) -> str:
        names = ("id", "predicted", "probability", "margin")
        caption = f"{counted(len(self), 'node')}" + (", the first ten:" if len(self) > 10 else "")
        return table_html(caption, self[:10], names)


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
        """Predict every node of a graph; equal to `dance-flwr predict` of the same data.

        Parameters
        ----------
        graph : a graph, its name or its folder, whose labels are not read; or the folder of a
            client, whose training labels count as in the run

        Raises
        ------
        UserError : the data do not fit the model: other encoder, classes or chunks
        """
        bundle = self.bundle
        with open_data(bundle, source_of(graph), lambda line: None) as client:
            probs = predict_proba(bundle, client)
            labels, probability, margin = best_class(bundle, probs)
            scaled = bundle.calibration.apply(probs)
            ids = client.data.ids()
        return Predictions(ids, self.class_names, scaled, labels, probability, margin)

    def explain(self, graph: GraphLike, nodes: Nodes) -> Evidence:
        """Return the evidence of these nodes; see `dance_flwr.api.explain`."""
        return explain(self, graph, nodes)

    def at(self, graph: GraphLike, *, view: str = "deployed") -> "GraphModel":
        """Return the model at one graph as a `torch.nn.Module`, for torch-geometric's `Explainer`.

        Parameters
        ----------
        view : "deployed" = what `predict` gives, before calibration; "plain" = the graph network
            alone, which has gradients

        Raises
        ------
        UserError : there is no such view, the method is not DANCE, or the data do not fit the model
        """
        # Imported here (decision 16): torch-geometric takes longer to import than torch.
        from dance_flwr.api.graph_model import GraphModel

        bundle = self.bundle
        with open_data(bundle, source_of(graph), lambda line: None) as client, torch.no_grad():
            return GraphModel.of(bundle, client, view)

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
