"""The contract of graph backbones theta, and their passes in parts.

A backbone maps features [n, d] and the sparse CSR operator of its kind (`propagation.operator`) to
g, [n, h]. The same parameters process the original graph (unit weights) and the reconstructed one
(weights >= 0), so every backbone reads edge weights. The state holds float parameters only, no
running statistics or counters, so that a weighted mean of states is a state. Hence there is no
batch normalisation, even if the paper uses it (GIN).

A pass is also available in parts, which read only the nodes around a batch. With x^ = LN(x), the
frozen texts, and u = `project(x^)`:

    g = finish(start(inputs(x^, P)), rest) = finish(spread(project(x^), first), rest)

`inputs` has no parameters: it is computed once per client. `operators` are the steps of a batch,
from the outermost nodes to the targets; the rows of each are the first of its columns, so a step
reads [b, .] and returns its first rows.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LAYER_NORM_EPS = 1e-5  # the default of PyTorch
_BYTE, _LOWEST = 256, -(2**63)  # values of a byte; the lowest of 64 bits


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each entry with probability `rate` and scale the others by 1 / (1 - rate).

    Srivastava et al. 2014. On a CPU, `torch.nn.functional.dropout` draws its mask one Bernoulli
    number at a time, which takes much longer than a byte per entry and a comparison; other devices
    use it. With a byte, the rate is a multiple of 1/256, the nearest one below 1.
    """
    # Nothing to draw, or not with the CPU's generator, which is the slow one.
    if not training or rate == 0 or values.device.type != "cpu":
        return F.dropout(values, rate, training)
    below, (*rows, width) = min(round(_BYTE * rate), _BYTE - 1), values.shape
    # Eight bytes per draw, of all 64 bits.
    drawn = torch.empty(*rows, -(-width // 8), dtype=torch.int64, device=values.device)
    mask = drawn.random_(_LOWEST, None).view(torch.uint8)[..., :width].to(values.dtype)
    mask.ge_(below).mul_(_BYTE / (_BYTE - below))
    # Inputs, the widest, need no gradient: the mask becomes the result, in its memory.
    return values * mask if values.requires_grad else mask.mul_(values)


Operators = Sequence[Tensor]


class Backbone(nn.Module):
    """g = f(dropout(LN(x)), P); [n, d], [n, n] -> [n, h].

    Inputs are layer-normalised without parameters, since text embeddings t_u (norm at most 1) and
    fused features x_v (norm near sqrt(d)) share the same weights. A subclass defines
    `project`, `spread` and `finish`; `inputs` and `start` too if the first step does not depend on
    parameters.

    Attributes
    ----------
    operator : the kind of `propagation.operator` that `forward` expects
    reach : g_v depends on the features of the nodes within this many hops of v
    hops_left : propagation steps in `finish`, the others being in `inputs` or `spread`
    """

    operator: ClassVar[str]
    reach: ClassVar[int] = 2
    hops_left: ClassVar[int] = 1

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, features: Tensor, operator: Tensor, added: Tensor | None = None) -> Tensor:
        """Return g, [n, h].

        Parameters
        ----------
        added : [n, w], added to `project`: what columns of the input beside the texts contribute
        """
        return self.propagate(self.drop(normalise(features)), operator, added)

    def propagate(self, hidden: Tensor, operator: Tensor, added: Tensor | None = None) -> Tensor:
        """f: [n, d], [n, n] -> [n, h]; `added` as in `forward`."""
        projected = self.project(hidden)
        return self.propagate_projected(projected if added is None else projected + added, operator)

    def propagate_projected(self, projected: Tensor, operator: Tensor) -> Tensor:
        """Return f after `project`; [n, w], [n, n] -> [n, h]."""
        # The steps of `spread` are the outermost ones, which read the most nodes.
        steps = [operator] * self.reach
        hop = self.reach - self.hops_left
        return self.finish(self.spread(projected, steps[:hop]), steps[hop:])

    def inputs(self, normalised: Tensor, operator: Tensor) -> Tensor:
        """The part of the first layer without parameters; [n, d], [n, n] -> [n, i]."""
        return normalised

    def start(self, inputs: Tensor) -> Tensor:
        """The rest of the first layer, node by node; [b, i] -> [b, .]."""
        return self.spread(self.project(inputs), ())

    def text_weight(self) -> Tensor:
        """U^T, the linear map that reads texts; [w, d]."""
        raise NotImplementedError

    def project(self, normalised: Tensor) -> Tensor:
        """U = x^ U; [b, d] -> [b, w]."""
        return F.linear(normalised, self.text_weight())

    def spread(self, projected: Tensor, operators: Operators) -> Tensor:
        """The first layer after `project`, over reach - hops_left steps; [b, w] -> [b', .]."""
        raise NotImplementedError

    def finish(self, hidden: Tensor, operators: Operators) -> Tensor:
        """The layers that remain, over hops_left steps; [b, .] -> [m, h]."""
        raise NotImplementedError

    def drop(self, hidden: Tensor) -> Tensor:
        """Apply dropout, in training mode only."""
        return dropout(hidden, self.dropout, self.training)


def normalise(features: Tensor) -> Tensor:
    """x^ = LN(x) without parameters; [b, d] -> [b, d]."""
    # Why without parameters (decision 4): the backbone reads t_u, of norm at most 1, and x_v, of
    # norm near sqrt(d), with the same weights.
    return F.layer_norm(features, features.shape[-1:], eps=LAYER_NORM_EPS)
