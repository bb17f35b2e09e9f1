"""The client side of FedTAD."""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel

_ROWS, _EDGES = 1024, 65536  # rows of S^2 and S^3, and pairs of features, in memory at a time


class FedTad(FedAvgFull):
    """FedAvg's local training; also uploads the client's reliability, which never changes."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train as FedAvg; add the statistic "reliability" [C]."""
        report = super().train(model, data, config, info)
        with report.phase("topology"):
            report.statistics = {"reliability": reliability(data)}
        return report


def reliability(data: ClientData) -> Tensor:
    """Phi_c = sum_v (1 + sum_{u in N(v)} cos(f_v, f_u)) / (|N(v)| + 1) over v in c; [C] float32.

    The sum is over the labelled training nodes v of class c; f_v = [t_v || s_v], the text embedding
    and the return probabilities of a walk from v.
    """

    def by_topology() -> Tensor:
        graph, labels = data.training_graph, data.train_labels
        walks = return_probabilities(graph).to(data.device)
        per_node = agreement(torch.cat([data.features, walks], dim=1), *graph.edges())
        known = labels >= 0
        total = torch.zeros(len(data.card.class_names), device=data.device)
        return total.index_add_(0, labels[known], per_node[known])

    # Once: neither graph nor texts change between rounds.
    return data.cached("fedtad reliability", None, by_topology)


def agreement(features: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """(1 + sum_{u in N(v)} cos(f_v, f_u)) / (|N(v)| + 1), 1 without neighbours; [n].

    Parameters
    ----------
    features : f, [n, d]
    rows, cols : [E] int64, edges in both directions
    """
    # Step 1: cosines of the ends of all edges, in blocks.
    unit = F.normalize(features, dim=1)
    nodes = len(features)
    blocks = [slice(start, start + _EDGES) for start in range(0, max(len(rows), 1), _EDGES)]
    cosines = torch.cat([(unit[rows[part]] * unit[cols[part]]).sum(dim=1) for part in blocks])
    # Step 2: means over the neighbours and the node itself, whose cosine is 1.
    total = torch.ones(nodes, device=features.device).index_add_(0, rows, cosines)
    return total / (torch.bincount(rows, minlength=nodes) + 1)


def return_probabilities(graph: LocalGraph) -> Tensor:
    """s_v = [T_vv, (T^2)_vv, .., (T^5)_vv] of the walk T = D^-1 A; [n, 5] float32.

    Zeros without neighbours. T and S = D^-1/2 A D^-1/2 are similar by a diagonal matrix, so their
    powers have the same diagonal. S is symmetric, hence (S^4)_vv = ||(S^2)_v||^2 and
    (S^5)_vv = (S^2)_v S (S^2)_v^T: no power above the third is computed, in blocks of rows.
    """
    rows, cols = (ends.cpu().numpy() for ends in graph.edges())
    nodes = graph.visible.numel()
    # At least 1: rows of isolated nodes are empty, and must not divide by 0.
    root = np.sqrt(np.bincount(rows, minlength=nodes).clip(min=1))
    walk = sp.csr_matrix((1 / (root[rows] * root[cols]), (rows, cols)), shape=(nodes, nodes))
    parts = [_diagonals(walk, start) for start in range(0, nodes, _ROWS)]
    return torch.from_numpy(np.concatenate(parts)).float()


def _diagonals(walk: sp.csr_matrix, start: int) -> NDArray[np.float64]:
    """Return the diagonals of the first five powers, for one block of rows."""
    one = walk[start : start + _ROWS]
    two = one @ walk
    three = two @ walk
    rows = np.arange(one.shape[0])
    # S is symmetric: the diagonal of S^a S^b is the row-wise product of S^a and S^b.
    pairs = ((one, one), (two, one), (two, two), (three, two))
    products = [np.asarray(left.multiply(right).sum(axis=1)).ravel() for left, right in pairs]
    return np.stack([np.asarray(one[rows, start + rows]).ravel(), *products], axis=1)
