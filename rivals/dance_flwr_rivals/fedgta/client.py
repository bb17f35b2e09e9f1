"""The client side of FedGTA."""

import math

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, class_probabilities
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import propagated
from dance_flwr_rivals.fedgta import FedGtaConfig


class FedGta(FedAvgFull):
    """FedAvg's local training, then M and H of the trained model's soft labels."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train as FedAvg; add the statistics "moments" [2 P C] and "confidence" [1]."""
        report = super().train(model, data, config, info)
        with report.phase("forward"):
            report.statistics = statistics(model, data, FedGtaConfig.of(config))
        return report


@torch.no_grad()
def statistics(model: PlainModel, data: ClientData, config: FedGtaConfig) -> dict[str, Tensor]:
    """Return M and H of a model's soft labels on a client's training graph, without a gradient."""
    graph, known = data.training_graph, data.train_labels >= 0
    soft = class_probabilities(model, LabelledGraph.of(data, graph, model))
    # Propagation starts at soft labels of all nodes, as in the official code. Started at training
    # nodes alone, as in OpenFGL, M and H hardly change from round to round.
    start = torch.where(known[:, None], data.label_table, soft)
    spread = propagate(start, known, graph.operator("gcn"), config.steps, config.alpha)
    flat = torch.softmax(spread / config.temperature, dim=1)
    # Training rows stay one-hot: propagation counts for the others only.
    sharp, flat = (
        torch.where(known[:, None], start, rows) for rows in (torch.softmax(spread, dim=1), flat)
    )
    return {
        "moments": moments(sharp[graph.visible], config.moments),
        "confidence": confidence(flat, graph.rows.ptr.diff()).reshape(1),
    }


def propagate(start: Tensor, known: Tensor, operator: Tensor, steps: int, alpha: float) -> Tensor:
    """Y_l = alpha P Y_(l-1) + (1 - alpha) Y_0, then + Y_0 on training rows; [n, C] -> [n, C].

    Parameters
    ----------
    start : Y_0, soft labels with one-hot training rows
    known : [n] bool, the training rows
    steps : last l
    operator : P = D^-1/2 (A + I) D^-1/2, sparse
    """
    # The official code adds the labels of training rows again in every step.
    again = torch.where(known[:, None], start, 0)
    spread = start
    for _ in range(steps):
        spread = alpha * propagated(operator, spread) + (1 - alpha) * start + again
    return spread


def moments(rows: Tensor, order: int) -> Tensor:
    """M: mu_p = mean_v R_v^p (raw), then c_p = mean_v (R_v - mean_u R_u)^p (central), p = 1..P.

    Parameters
    ----------
    rows : R, [n, C]
    order : P

    Returns
    -------
    [2 P C] float32, computed in float64; zeros without rows
    """
    # float64: high powers of small shares leave the range of float32.
    rows = rows.double()
    # One power at a time, as 2 P tables of [n, C] would outgrow the graph.
    means = [
        (values**p).mean(dim=0)
        for values in (rows, rows - rows.mean(dim=0))
        for p in range(1, order + 1)
    ]
    # A client without visible nodes has means over nothing, and uploads zeros.
    return torch.cat(means).nan_to_num().float()


def confidence(rows: Tensor, degree: Tensor) -> Tensor:
    """H = sum_v d_v sum_c (1 / e + S_vc ln(S_vc + 1e-8)) >= 0, since x ln x >= -1 / e; a scalar.

    Parameters
    ----------
    rows : S, [n, C]
    degree : d, [n]
    """
    rows = rows.double()
    # 1e-8 is the official code's, for entries of 0.
    certain = (math.exp(-1) + rows * torch.log(rows + 1e-8)).sum(dim=1)
    # Rounding may bring a sum of zeros below 0, and weights must not be negative.
    return (degree.double() * certain).sum().clamp(min=0).float()
