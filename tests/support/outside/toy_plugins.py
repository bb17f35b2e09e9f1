"""A strategy, a partitioner, a data set, a rule of chunks and a tracker of another package."""

import json
from pathlib import Path

import numpy as np
import torch
from flwr.serverapp.strategy import FedAvg

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.catalogue import GraphSource
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs


def strategy(config: RunConfig, **options) -> FedAvg:
    """Return Flower's FedAvg."""
    return FedAvg(**options)


def assign(graph, spec):
    """Return client k for every node whose number leaves k."""
    return np.arange(graph.num_nodes, dtype=np.int64) % spec.clients


def build() -> TextGraph:
    """Return a ring of 30 nodes in two classes."""
    number = np.arange(30)
    indptr, indices = csr_from_pairs(number, (number + 1) % 30, 30)
    return TextGraph(
        name="toy-data",
        ids=np.array([f"n{i}" for i in number]),
        texts=[("sail and mast", "oven and garlic")[i % 2] + f" {i}" for i in number],
        labels=number % 2,
        class_names=("cooking", "sailing"),
        indptr=indptr,
        indices=indices,
        split=np.zeros(30, np.uint8),
    )


DATASET = GraphSource(build, lambda: "1")


def best_chunk(scores, inside):
    """Give all weight to the chunk with the highest score, the first one of equals."""
    weights = torch.zeros_like(scores).scatter(1, scores.argmax(dim=1, keepdim=True), 1.0)
    return weights * inside


class Tracker:
    """Keep a run in `toy.json` of the current folder."""

    package = ""

    def __init__(self, run):
        """Begin with no round."""
        self.rounds, self.place, self.kept = 0, "toy.json", []

    def log(self, round_, numbers):
        """Keep the numbers of a round."""
        self.kept.append(numbers)
        self.rounds = round_

    def end(self, state, numbers, facts):
        """Write all of them."""
        Path("toy.json").write_text(json.dumps({"rounds": self.kept, "final": numbers}))
