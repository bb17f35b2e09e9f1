"""Predict and explain the nodes of a folder with the model of a bundle."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.card import CARD
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, UNLABELLED, TextGraph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.institution import make_folder
from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.render import render
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.methods.contract import RoundInfo

Log = Callable[[str], None]


@contextmanager
def open_data(bundle: Bundle, data: str | TextGraph, log: Log) -> Iterator[Client]:
    """Open a client's folder, or make a temporary one of a graph, with the bundle's model.

    Parameters
    ----------
    data : folder of a client, or a graph, its name or its folder; labels of a graph are not read
    """
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        if isinstance(data, str) and (Path(data) / CARD).is_file():
            yield bundle.client(Path(data), Path(scratch) / "derived")
            return
        graph = load_graph(data) if isinstance(data, str) else data
        folder = Path(scratch) / "client-0"
        make_folder(_unlabelled(graph), bundle.agreement, 0, 1, folder, log=log)
        yield bundle.client(folder)


def _unlabelled(graph: TextGraph) -> TextGraph:
    """Return the graph without labels and split."""
    # A prediction must not rest on the labels that it is compared with.
    return replace(
        graph,
        class_names=(),
        labels=np.full_like(graph.labels, UNLABELLED),
        split=np.full_like(graph.split, NO_SPLIT),
    )


@torch.no_grad()
def predict_proba(bundle: Bundle, client: Client) -> Tensor:
    """Return the deployed probabilities of every node, before calibration; [n, C]."""
    info = RoundInfo("predict", int(bundle.facts["best_round"]), bundle.model_id, final=True)
    everyone = torch.arange(client.data.num_nodes)
    return client.predict(info, everyone)["deployed"]


def best_class(bundle: Bundle, probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return predicted classes, their calibrated probabilities and margins; [m, C] -> three [m].

    The margin is the distance to the probability of the second class.
    """
    best = bundle.calibration.apply(probs).topk(min(2, probs.size(1)), dim=1)
    top = best.values[:, 0]
    return best.indices[:, 0], top, top - best.values[:, -1]


def explainer_of(bundle: Bundle, client: Client) -> Explainer:
    """Return the explainer of the bundle's model at a client's data."""
    settings, round_ = DanceConfig.of(bundle.config), int(bundle.facts["best_round"])
    model, smooth = cast(DanceModel, client.model), smoothing_of(bundle.config, client.data)
    after = (smooth, client.mixture(), bundle.calibration)
    return Explainer(model, client.data, settings, round_, bundle.model_id, *after)


def show_node(
    bundle: Bundle, data: str, node: str, log: Log, form: Callable[..., Any] = render
) -> Any:
    """Return the evidence pack of any node of a graph, or of a client's folder, as text.

    Parameters
    ----------
    form : what it is returned as, a function like `render`
    """
    with open_data(bundle, data, log) as client:
        ids = client.data.ids()
        if node not in ids:
            raise UserError(f"--node: expected the id of a node of {data}, found {node!r}")
        packs = explainer_of(bundle, client).explain(torch.tensor([ids.index(node)]))
        return form(client.data, packs, 0)


def known_labels(data: str, client: Client) -> Iterator[tuple[str, Tensor, dict[str, int]]]:
    """Yield a name and [n] int64 labels, -1 = unknown, to compare predictions with.

    Of a client's folder the test nodes; of a graph all nodes of classes that the model knows. The
    third value counts the other labelled nodes by their class, the most frequent first.
    """
    if (Path(data) / CARD).is_file():
        yield "test", torch.where(client.data.split == TEST, client.data.labels, -1), {}
        return
    graph = load_graph(data)
    number_of = {name: k for k, name in enumerate(client.data.card.class_names)}
    # The last entry is for nodes without a label, whose number is -1.
    numbers = torch.tensor([*(number_of.get(name, -1) for name in graph.class_names), -1])
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
    unknown = {
        name: int(count)
        for name, count in zip(graph.class_names, counts, strict=True)
        if count and name not in number_of
    }
    by_count = dict(sorted(unknown.items(), key=lambda item: (-item[1], item[0])))
    yield "labelled", numbers[torch.as_tensor(graph.labels)], by_count
