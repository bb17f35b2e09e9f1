"""K_k = max(#classes of training nodes, ceil(r n_k)): the budget of every baseline, by class."""

import torch
from torch import Tensor

from dance_flwr.dance.nodes import class_quotas, node_budget


def training_quotas(labels: Tensor, num_nodes: int, num_classes: int, ratio: float) -> Tensor:
    """Return K_c by largest remainder of K |tr_c| / |tr|, at least 1 per class; [C] int64.

    K = max(number of classes that occur, ceil(r n)), at most the number of labelled training nodes.
    As in the paper, r is a ratio of all local nodes; public condensation code takes a ratio of the
    training nodes. A class that the remainders leave with nothing takes its node from the class
    that is farthest above its exact share. The quotas never exceed their classes and add up to K.

    Parameters
    ----------
    labels : [n] int64, training labels, -1 where there is none
    num_nodes : n, nodes that the ratio counts
    """
    sizes = torch.bincount(labels[labels >= 0], minlength=num_classes)
    total = int(sizes.sum())
    if total == 0:
        return sizes
    budget = min(max(int((sizes > 0).sum()), node_budget(num_nodes, ratio)), total)
    quotas = class_quotas(sizes, budget)
    quotas[(quotas == 0) & (sizes > 0)] = 1
    least = torch.iinfo(torch.int64).min
    while int(quotas.sum()) > budget:
        above = (quotas * total - sizes * budget).masked_fill(quotas < 2, least)
        quotas[above.argmax()] -= 1
    return quotas
