"""min_S E_theta sum_c D(grad L_c(S; theta), grad L_c(G; theta)): GCond's gradient matching.

Jin, Zhao, Zhang, Liu, Tang and Shah, "Graph Condensation for Graph Neural Networks", ICLR 2022. The
matching network is the simplified graph convolution of the public code on Cora and CiteSeer, with
logits Z W + b, Z = P^2 LN(X) and P = D^-1/2 (A + I) D^-1/2. The gradient of the loss of class c
then has a closed form, (1 / n_c) sum over nodes of c of z (softmax(zW + b) - y)^T. It is written
out, and the gradient with respect to S takes one backward pass.

Deviations: features are layer-normalised on both sides, as every backbone here normalises its
input; the full graph with the class masked instead of sampled neighbourhoods, which has the same
expectation; no feature-smoothness term (its weight is 0 in the public runs); the S with the best
validation accuracy is kept, not the last one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr_rivals.condensation.adjacency import PairNetwork, normalise
from dance_flwr_rivals.condensation.config import CondenseConfig
from dance_flwr_rivals.condensation.graphs import Condensed, RealGraph, layer_normalise, spread

CHECKS = 10  # how often S is validated
# The turns are those of the public code.
_CYCLE, _ADJACENCY_TURN = 50, 10  # of 50 steps the first 10 move A', the others X'


DEAD = 1e-8  # a column of a smaller norm has no direction
_EPS = 1e-6

Gradients = Sequence[Tensor]


def by_columns(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum_j 1 - cos(g'_j, g_j) over the columns j of all weight matrices, without biases; [B].

    Jin et al. 2022, eq. 9. The cosine's denominator gets 1e-6, as in the public code. Deviation: a
    column with a norm near zero on either side is omitted, since its cosine would be noise.

    Parameters
    ----------
    condensed, real : B gradients each, as tensors [B, in, out] (matrices) and [B, out] (biases)
    """
    total = real[0].new_zeros(len(real[0]))
    for left, right in zip(condensed, real, strict=True):
        # Matrices alone, as in the public code, which skips biases.
        if left.dim() == 3:
            sizes = torch.linalg.vector_norm(left, dim=1), torch.linalg.vector_norm(right, dim=1)
            cosine = (left * right).sum(1) / (sizes[0] * sizes[1] + _EPS)
            # Detached: whether a column counts has no gradient.
            alive = (sizes[0].detach() >= DEAD) & (sizes[1] >= DEAD)
            total = total + torch.where(alive, 1 - cosine, torch.zeros_like(cosine)).sum(1)
    return total


def squared(condensed: Gradients, real: Gradients) -> Tensor:
    """D = sum (g' - g)^2 over all entries, biases included; a sum, not a mean; [B]."""
    pairs = zip(condensed, real, strict=True)
    return torch.stack([(left - right).square().flatten(1).sum(1) for left, right in pairs]).sum(0)


DISTANCES = {"ours": by_columns, "mse": squared}


@dataclass
class Network:
    """theta = (W, b) of the matching network: W [d, C], b [C]."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def draw(
        cls, dim: int, classes: int, generator: torch.Generator, device: torch.device
    ) -> "Network":
        """Draw theta as `nn.Linear` does, uniformly within 1 / sqrt(d)."""
        values = (torch.rand(dim + 1, classes, generator=generator).to(device) * 2 - 1) / dim**0.5
        return cls(values[:dim], values[dim])

    def residuals(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """softmax(Z W + b) - Y, the gradient of the cross-entropy at the logits; [m, C]."""
        return torch.softmax(hidden @ self.weight + self.bias, dim=1) - F.one_hot(
            labels, len(self.bias)
        )


def class_gradients(network: Network, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """G_c = (1 / n_c) sum_(y_i = c) z_i r_i^T, and the same for the bias; 0 without nodes.

    Parameters
    ----------
    hidden : Z, [m, d]
    labels : [m] int64, sorted

    Returns
    -------
    [C, d, C] for the weight, [C, C] for the bias
    """
    classes = len(network.bias)
    sizes = torch.bincount(labels, minlength=classes).tolist()
    # Rows are sorted by class, so that a class is a slice and no mask is needed.
    rows = (
        torch.split_with_sizes(part, sizes) for part in (hidden, network.residuals(hidden, labels))
    )
    parts = list(zip(*rows, strict=True))
    weights = torch.stack([z.T @ r / max(1, len(r)) for z, r in parts])
    return weights, torch.stack([r.sum(0) / max(1, len(r)) for _, r in parts])


def matching_loss(
    target: tuple[Tensor, Tensor], network: Network, condensed: tuple[Tensor, Tensor], kind: str
) -> Tensor:
    """L = sum_c (K_c / max K_c) D(G'_c, G_c), a scalar.

    Parameters
    ----------
    target : G, as `class_gradients` returns it, without a gradient
    condensed : (Z, labels), labels sorted
    kind : name in `DISTANCES`
    """
    # Classes with more condensed nodes count more, as in the public code.
    sizes = torch.bincount(condensed[1], minlength=len(network.bias))
    distance = DISTANCES[kind](class_gradients(network, *condensed), target)
    return (sizes / sizes.max() * distance).sum()


def initial_graph(
    labels: Tensor, quotas: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return (Y' [K], the real training nodes [K] whose features start X').

    Row i of both has the same class. Nodes are drawn without repetition within a class.

    Parameters
    ----------
    labels : [n] int64 training labels, -1 elsewhere
    quotas : [C] int64
    """
    drawn = []
    for number, quota in enumerate(quotas.tolist()):
        nodes = torch.nonzero(labels == number).flatten()
        # Quotas never exceed their classes, so that no node is drawn twice.
        pick = torch.randperm(nodes.numel(), generator=generator)[:quota]
        drawn.append(nodes[pick.to(nodes.device)])
    rows = torch.cat(drawn)
    return labels[rows], rows


class LearntGraph(ABC):
    """S as free features X' and a pair network that maps them to A'; rows are sorted by class.

    The pair network is initialised from torch's global generator.

    Parameters
    ----------
    labels : Y', [K]
    features : the first X', [K, d]
    adjacency_rate, feature_rate : learning rates of Adam
    """

    def __init__(
        self, labels: Tensor, features: Tensor, adjacency_rate: float, feature_rate: float
    ) -> None:
        self.labels, self.features = labels, features.requires_grad_()
        self.pairs = PairNetwork(features.size(1)).to(features.device)
        # One optimiser each: while X' moves, the moments of the pair network stay as they are.
        self._optimizers = (
            torch.optim.Adam(self.pairs.parameters(), lr=adjacency_rate),
            torch.optim.Adam([self.features], lr=feature_rate),
        )

    @abstractmethod
    def loss(self) -> Tensor:
        """Return the loss of the current S, a scalar."""

    @abstractmethod
    def snapshot(self) -> Condensed:
        """Return the current S."""

    def step(self, number: int) -> float:
        """Take step `number`, from 0, of the adjacency or the features; return the loss before."""
        turn = int(number % _CYCLE >= _ADJACENCY_TURN)
        self.features.requires_grad_(bool(turn))
        self.pairs.requires_grad_(not turn)
        self._optimizers[turn].zero_grad()
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizers[turn].step()
        return float(loss.detach())


class Matching(LearntGraph):
    """Learns S by the gradients of a fresh network in every step.

    Parameters
    ----------
    quotas : [C] int64, at least one node in all
    generator : a CPU generator, of the first nodes and the networks
    """

    def __init__(
        self, real: RealGraph, quotas: Tensor, settings: CondenseConfig, generator: torch.Generator
    ) -> None:
        labels, nodes = initial_graph(real.labels, quotas, generator)
        # X' starts at real rows. The public code of FedC4 takes 21 steps from noise, which leaves
        # little of the graph in X'.
        features = layer_normalise(real.features)[nodes].clone()
        super().__init__(labels, features, settings.adjacency_rate, settings.feature_rate)
        known = real.nodes_by_class()
        self._real = real.propagated()[known], real.labels[known]
        self._generator, self._classes = generator, len(quotas)
        self._distance = settings.distance

    def loss(self) -> Tensor:
        """Match one network."""
        # A fresh network per epoch: S should match in expectation over theta, not at one of them.
        network = Network.draw(
            self.features.size(1), self._classes, self._generator, self.features.device
        )
        # The real side is a target; only S gets a gradient.
        with torch.no_grad():
            target = class_gradients(network, *self._real)
        hidden = layer_normalise(self.features)
        hidden = spread(hidden, normalise(self.pairs(hidden)))[-1]
        return matching_loss(target, network, (hidden, self.labels), self._distance)

    @torch.no_grad()
    def snapshot(self) -> Condensed:
        """Return the current S."""
        features = self.features.detach().clone()
        adjacency = self.pairs(layer_normalise(features))
        # The rounding of a sigmoid depends on its position in a vector register, so that a_ij and
        # a_ji may differ in the last bit.
        return Condensed(self.labels, features, torch.maximum(adjacency, adjacency.T))


def condense(
    step: Callable[[int], float],
    snapshot: Callable[[], Condensed],
    steps: int,
    score: Callable[[Condensed], float],
) -> Condensed:
    """Return the S with the highest score among `CHECKS` evenly spaced steps.

    The last step is one of them; ties go to the later one. `step` and `snapshot` are those of a
    `LearntGraph`, or of what learns S in another way.
    """
    # Why (decision 11): the last S is not the best one; all methods measure S with the same GCN.
    every = max(1, steps // CHECKS)
    best, highest = None, float("-inf")
    for number in range(1, steps + 1):
        step(number - 1)
        if number % every == 0 or number == steps:
            candidate = snapshot()
            value = score(candidate)
            if value >= highest:
                best, highest = candidate, value
    assert best is not None
    return best
