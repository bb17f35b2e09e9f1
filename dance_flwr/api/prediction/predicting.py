"""Predict the nodes of a folder with the model of a bundle."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.card import CARD
from dance_flwr.data.client_folder import Say
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, UNLABELLED, TextGraph
from dance_flwr.data.graphs.loading import load_graph
from dance_flwr.data.institution import make_folder
from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import explain
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import render
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.methods.contract import RoundInfo


@contextmanager
def opened(bundle: Bundle, data: str | TextGraph, say: Say) -> Iterator[Client]:
    """Open a client's folder, or make one of a graph for as long as the block lasts.

    Parameters
    ----------
    data : folder of a client, or a graph, its name or its folder; labels of a graph are not read

    Raises
    ------
    UserError : its classes, encoder or chunks are not those of the bundle
    """
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        if isinstance(data, str) and (Path(data) / CARD).is_file():
            yield bundle.client(Path(data), Path(scratch) / "derived")
            return
        graph = load_graph(data, labelled=False) if isinstance(data, str) else data
        folder = Path(scratch) / "client-0"
        make_folder(_unlabelled(graph), bundle.agreement, 0, 1, folder, say=say)
        yield bundle.client(folder)


def _unlabelled(graph: TextGraph) -> TextGraph:
    """Return the graph without labels: a prediction must not rest on what it is compared with."""
    return replace(
        graph,
        class_names=(),
        labels=np.full_like(graph.labels, UNLABELLED),
        split=np.full_like(graph.split, NO_SPLIT),
    )


@torch.no_grad()
def deployed(bundle: Bundle, client: Client) -> Tensor:
    """Return what the run would deploy for every node, [n, C] probabilities."""
    info = RoundInfo("predict", int(bundle.facts["best_round"]), bundle.model_id, final=True)
    everyone = torch.arange(client.data.num_nodes)
    return client.predict(info, everyone)["deployed"]


def ranked(bundle: Bundle, probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return predicted classes, their calibrated probabilities and margins; [m, C] -> three [m].

    The margin is the distance to the probability of the second class.
    """
    best = bundle.calibration.apply(probs).topk(min(2, probs.size(1)), dim=1)
    top = best.values[:, 0]
    return best.indices[:, 0], top, top - best.values[:, -1]


def explained(bundle: Bundle, client: Client, nodes: Tensor) -> Packs:
    """Return the evidence packs of these nodes under the bundle's model; [m] int64."""
    settings, round_ = DanceConfig.of(bundle.config), int(bundle.facts["best_round"])
    model = cast(DanceModel, client.model)
    smooth = smoothing_of(bundle.config, client.data)
    return explain(model, client.data, nodes, settings, round_, bundle.model_id, smooth=smooth)


def show(bundle: Bundle, data: str, node: str, say: Say) -> str:
    """Return the evidence pack of any node of a graph, or of a client's folder, as text.

    Raises
    ------
    UserError : the graph has no such node, or the bundle's method keeps no evidence
    """
    with opened(bundle, data, say) as client:
        ids = client.data.ids()
        if node not in ids:
            raise UserError(f"--node: expected the id of a node of {data}, found {node!r}")
        packs = explained(bundle, client, torch.tensor([ids.index(node)]))
        return render(client.data, packs, 0)


def labels_of(data: str, client: Client) -> Iterator[tuple[str, Tensor, dict[str, int]]]:
    """Yield a name and [n] int64 labels, -1 = unknown, to compare predictions with.

    Of a client's folder the test nodes; of a graph all nodes of classes that the model knows. The
    third value counts the other labelled nodes by their class, the most frequent first.
    """
    client_data = client.data
    if (Path(data) / CARD).is_file():
        yield "test", torch.where(client_data.split == TEST, client_data.labels, -1), {}
        return
    graph, names = (
        load_graph(data, labelled=False),
        {name: k for k, name in enumerate(client_data.card.class_names)},
    )
    numbers = torch.tensor([*(names.get(name, -1) for name in graph.class_names), -1])
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
    lacking = {
        name: int(count)
        for name, count in zip(graph.class_names, counts, strict=True)
        if count and name not in names
    }
    often = dict(sorted(lacking.items(), key=lambda item: (-item[1], item[0])))
    yield "labelled", numbers[torch.as_tensor(graph.labels)], often
