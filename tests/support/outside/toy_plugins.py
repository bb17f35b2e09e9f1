"""A strategy, a partitioner, a data set, a rule of chunks and a tracker of another package."""

import json
from pathlib import Path

import numpy as np
import torch
from flwr.serverapp.strategy import FedAvg

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.catalogue import GraphSource
from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs
from dance_flwr.runs.tracking import final_numbers, round_numbers


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


def track(run):
    """Keep the rounds of a run in `toy.json` of the current folder."""
    kept = {"rounds": [round_numbers(row) for row in run.rows], "final": final_numbers(run.result)}
    Path("toy.json").write_text(json.dumps(kept))
    return "toy.json"
