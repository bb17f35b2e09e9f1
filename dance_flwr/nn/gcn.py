"""theta: the graph convolutional network, the default backbone.

Written without torch-geometric, whose import costs more than that of torch: a process that runs the
default needs neither. Parameters have the names, shapes and initial values of its `GCNConv`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.nn.backbone import Backbone, Operators
from dance_flwr.nn.propagation import propagated


class Layer(nn.Module):
    """The parameters of x W + b; W [out, in] uniform as Glorot and Bengio 2010 have it, b = 0."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        # Why these names and initial values (decision 16): those of `GCNConv`, whose import costs
        # more than that of torch.
        self.bias = nn.Parameter(torch.zeros(width_out))
        self.lin = nn.Linear(width_in, width_out, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)


class Gcn(Backbone):
    """g = P dropout(relu(P x W_1 + b_1)) W_2 + b_2, P = D^-1/2 (A + I) D^-1/2; [n, d] -> [n, h].

    Kipf and Welling 2017.
    """

    operator = "gcn"

    def __init__(self, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(dropout)
        self.first = Layer(text_dim, hidden_dim)
        self.second = Layer(hidden_dim, hidden_dim)

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """P x^; [n, d]."""
        return propagated(operator, normalised)

    def start(self, inputs: Tensor) -> Tensor:
        """relu((P x^) W_1 + b_1); [b, h]."""
        return F.relu(self.project(inputs) + self.first.bias)

    def text_weight(self) -> Tensor:
        """W_1^T; [h, d]."""
        return self.first.lin.weight

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """relu(P u + b_1); [b', h]."""
        return F.relu(propagated(operators[0], projected) + self.first.bias)

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """P dropout(.) W_2 + b_2; [m, h]."""
        # The map before the step, as `GCNConv` has it.
        hidden = F.linear(self.drop(hidden), self.second.lin.weight)
        return propagated(operators[0], hidden) + self.second.bias
