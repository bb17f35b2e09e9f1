"""FedTAD, the client side: FedAvg and one vector that says on which classes this client is to be trusted.

Zhu, Li, Wu, Wu, Hu and Li, "FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph Federated Learning",
IJCAI 2024, arXiv 2404.14061; public code at zyl24/FedTAD 3285d54. The server side is `dance_flwr.strategies.fedtad`:
after the mean by nodes a generator of pseudo-graphs and the clients' own models teach the global model. Evaluated is
that global model.

Uplink: the model and C floats, the reliability; a server reads single uploads, and the reliability tells of labels.

Deviations from the paper: divergence is the L1 distance of logits, as in the public code, not KL. From the public code:
its "random walk" samples almost uniformly from all nodes and puts their numbers into the features, so that reliability
comes down to class counts (`fedtad.reliability = count`); here the structural encoding is the return probabilities of
a walk, deterministic and sparse. Reliability is normalised across clients, as the paper says. See also `distil`. The
paper reports 85.1 on Cora and 73.5 on CiteSeer for 5 clients and 20/40/40.

Test accuracy of `fedtad` on Cora: 87.66 % here.
Test accuracy of `fedtad` on CiteSeer: 76.44 % here.
"""

from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.fedavg_full import FedAvgFull
from dance_flwr.report import Report
from dance_flwr.site import LocalGraph, Site

_ROWS, _EDGES = 1024, 65536  # of S^2 and S^3, and of pairs of features, in memory at a time
_FOUND: WeakKeyDictionary[Site, Tensor] = WeakKeyDictionary()  # it never changes: once per process and site


class FedTad(FedAvgFull):
    """FedAvg's local training; beside the model goes the reliability of the client, the same in every round."""

    uplink = Uplink.EACH
    card = MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters; a reliability per class, which tells of its labels; counts, seconds; the "
        "server reads each client's",
        source="Zhu et al. 2024, arXiv 2404.14061",
        server="fedtad",
    )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Train as FedAvg does and add the statistic "reliability" [C]."""
        report = super().train(model, site, config, info)
        with report.phase("topology"):
            report.statistics = {"reliability": reliability(site, config.fedtad.reliability)}
        return report


def reliability(site: Site, kind: str) -> Tensor:
    """Phi_c = sum over labelled nodes v of class c of (1 + sum_{u in N(v)} cos(f_v, f_u)) / (|N(v)| + 1), [C] float32.

    f_v = [t_v || s_v], the text embedding and the return probabilities of a walk from v. Under "count" every labelled
    node counts 1.
    """
    labels = site.train_labels
    classes = len(site.card.class_names)
    if kind == "count":
        return torch.bincount(labels[labels >= 0], minlength=classes).float()
    if site not in _FOUND:
        features = torch.cat([site.table.nodes, return_probabilities(site.training_graph).to(site.device)], dim=1)
        per_node = agreement(features, *site.training_graph.edges())
        known = labels >= 0
        total = torch.zeros(classes, device=site.device)
        _FOUND[site] = total.index_add_(0, labels[known], per_node[known])
    return _FOUND[site]


def agreement(features: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """(1 + sum_{u in N(v)} cos(f_v, f_u)) / (|N(v)| + 1); [n, d], [E] edges both ways -> [n], 1 without neighbours."""
    unit = F.normalize(features, dim=1)
    nodes = len(features)
    blocks = [slice(start, start + _EDGES) for start in range(0, max(len(rows), 1), _EDGES)]
    cosines = torch.cat([(unit[rows[part]] * unit[cols[part]]).sum(dim=1) for part in blocks])
    total = torch.ones(nodes, device=features.device).index_add_(0, rows, cosines)
    return total / (torch.bincount(rows, minlength=nodes) + 1)


def return_probabilities(graph: LocalGraph) -> Tensor:
    """s_v = [T_vv, (T^2)_vv, .., (T^5)_vv] of the walk T = D^-1 A; [n, 5] float32, zeros without neighbours.

    T and S = D^-1/2 A D^-1/2 are similar by a diagonal matrix, so their powers have the same diagonal; S is symmetric,
    hence (S^4)_vv = ||(S^2)_v||^2 and (S^5)_vv = (S^2)_v S (S^2)_v^T, and no power above the third is made, in blocks
    of rows.
    """
    rows, cols = (ends.cpu().numpy() for ends in graph.edges())
    nodes = graph.visible.numel()
    root = np.sqrt(np.bincount(rows, minlength=nodes).clip(min=1))
    walk = sp.csr_matrix((1 / (root[rows] * root[cols]), (rows, cols)), shape=(nodes, nodes))
    parts = [_diagonals(walk, start) for start in range(0, nodes, _ROWS)]
    return torch.from_numpy(np.concatenate(parts)).float()


def _diagonals(walk: sp.csr_matrix, start: int) -> NDArray[np.float64]:
    """Return the diagonals of the first five powers, for one block of rows."""
    one = walk[start : start + _ROWS]
    two = one @ walk
    three = two @ walk
    here = np.arange(one.shape[0])
    pairs = ((one, one), (two, one), (two, two), (three, two))
    products = [np.asarray(left.multiply(right).sum(axis=1)).ravel() for left, right in pairs]
    return np.stack([np.asarray(one[here, start + here]).ravel(), *products], axis=1)
