"""Random graphs of a client."""

import numpy as np
import torch
from support.builders import random_csr, rows_of

from dance_flwr.client_data.local_graph import LocalGraph


def random_graph(seed, n=12, density=0.3, seen=1.0):
    """Return (LocalGraph, dense A, rng); isolated and invisible nodes occur."""
    rng = np.random.default_rng(seed)
    visible = torch.tensor(rng.random(n) < seen)
    rows = rows_of(random_csr(rng, n, density))
    graph = LocalGraph(rows.keep(visible[rows.rows()] & visible[rows.index]), visible)
    adjacency = np.zeros((n, n))
    adjacency[tuple(part.numpy() for part in graph.edges())] = 1
    return graph, adjacency, rng
