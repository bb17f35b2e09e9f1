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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr_rivals.condensation.adjacency import PairNetwork, normalise
from dance_flwr_rivals.condensation.config import CondenseConfig
from dance_flwr_rivals.condensation.distances import DISTANCES
from dance_flwr_rivals.condensation.graphs import HOPS, Condensed, RealGraph, layer_normalise

CHECKS = 10  # how often S is validated
# The turns and the rate are those of the public code.
_NETWORK_RATE = 0.01
_CYCLE, _ADJACENCY_TURN = 50, 10  # of 50 steps the first 10 move A', the others X'


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
    labels: Tensor, quotas: Tensor, generator: torch.Generator, released: bool = False
) -> tuple[Tensor, Tensor]:
    """Return (Y' [K], the real training nodes [K] whose features start X').

    Row i of both has the same class. Nodes are drawn without repetition within a class.

    Parameters
    ----------
    labels : [n] int64 training labels, -1 elsewhere
    quotas : [C] int64
    released : reproduce the mismatch of the public code (its issue 17): labels by ascending
        frequency of the class in the training nodes, features by class number
    """
    order = list(range(len(quotas)))
    drawn = []
    for number in order:
        nodes = torch.nonzero(labels == number).flatten()
        # Quotas never exceed their classes, so that no node is drawn twice.
        pick = torch.randperm(nodes.numel(), generator=generator)[: int(quotas[number])]
        drawn.append(nodes[pick.to(nodes.device)])
    if released:
        sizes = torch.bincount(labels[labels >= 0], minlength=len(quotas))
        order = torch.sort(sizes, stable=True).indices.tolist()
    places = torch.tensor(order, device=labels.device)
    return torch.repeat_interleave(places, quotas.to(labels.device)[places]), torch.cat(drawn)


class Matching:
    """Learns S as free features X' and a pair network that maps them to A'.

    Rows are sorted by class.

    Parameters
    ----------
    quotas : [C] int64, at least one node in all
    generator : a CPU generator; the only source of randomness, except that the pair network is
        initialised from torch's global generator
    """

    def __init__(
        self, real: RealGraph, quotas: Tensor, settings: CondenseConfig, generator: torch.Generator
    ) -> None:
        labels, nodes = initial_graph(real.labels, quotas, generator, settings.released_code)
        # Sorted by class, as `class_gradients` expects; a no-op unless the released order is asked
        # for.
        order = torch.sort(labels, stable=True).indices
        self.labels = labels[order]
        # X' starts at real rows. The public code of FedC4 takes 21 steps from noise, which leaves
        # little of the graph in X'.
        self.features = layer_normalise(real.features)[nodes][order].clone().requires_grad_()
        self.pairs = PairNetwork(real.features.size(1)).to(real.features.device)
        known = real.nodes_by_class()
        self._real = real.propagated()[known], real.labels[known]
        self._settings, self._generator, self._classes = settings, generator, len(quotas)
        # One optimiser each: while X' moves, the moments of the pair network stay as they are.
        self._optimizers = (
            torch.optim.Adam(self.pairs.parameters(), lr=settings.adjacency_rate),
            torch.optim.Adam([self.features], lr=settings.feature_rate),
        )

    def propagated(self) -> Tensor:
        """Z' = P'^2 LN(X'), [K, d]."""
        hidden = layer_normalise(self.features)
        operator = normalise(self.pairs(hidden))
        for _ in range(HOPS):
            hidden = operator @ hidden
        return hidden

    def step(self, number: int) -> float:
        """Match one fresh network `outer` times; return the last loss."""
        settings, turn = self._settings, turn_of(number)
        # A fresh network per epoch: S should match in expectation over theta, not at one of them.
        network = Network.draw(
            self.features.size(1), self._classes, self._generator, self.features.device
        )
        train = torch.optim.Adam([network.weight, network.bias], lr=_NETWORK_RATE)
        value = 0.0
        for step in range(settings.outer):
            value = self._move(network, turn)
            # Not after the last matching step, when theta is discarded.
            if step < settings.outer - 1 and settings.inner:
                with torch.no_grad():
                    self._train(network, train)
        return value

    def _move(self, network: Network, turn: int) -> float:
        """Update the adjacency (turn 0) or the features (turn 1) by one step; return the loss."""
        optimizer = self._optimizers[turn]
        self.features.requires_grad_(bool(turn))
        self.pairs.requires_grad_(not turn)
        optimizer.zero_grad()
        # The real side is a target; only S gets a gradient.
        with torch.no_grad():
            target = class_gradients(network, *self._real)
        condensed = self.propagated(), self.labels
        loss = matching_loss(target, network, condensed, self._settings.distance)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def _train(self, network: Network, optimizer: torch.optim.Optimizer) -> None:
        hidden = self.propagated()
        for _ in range(self._settings.inner):
            # The gradient of the mean cross-entropy, written out: no graph of operations is
            # recorded.
            residuals = network.residuals(hidden, self.labels) / len(self.labels)
            network.weight.grad, network.bias.grad = hidden.T @ residuals, residuals.sum(0)
            optimizer.step()

    @torch.no_grad()
    def snapshot(self) -> Condensed:
        """Return the current S."""
        features = self.features.detach().clone()
        adjacency = self.pairs(layer_normalise(features))
        # The rounding of a sigmoid depends on its position in a vector register, so that a_ij and
        # a_ji may differ in the last bit.
        return Condensed(self.labels, features, torch.maximum(adjacency, adjacency.T))


def turn_of(number: int) -> int:
    """Return which part step `number`, from 0, updates: 0 = adjacency A', 1 = features X'."""
    return int(number % _CYCLE >= _ADJACENCY_TURN)


class LearntGraph(Protocol):
    """A synthetic graph that is learnt step by step."""

    def step(self, number: int) -> float:
        """Take step `number`, from 0; return its loss."""
        ...

    def snapshot(self) -> Condensed:
        """Return the current S."""
        ...


def condense(learning: LearntGraph, steps: int, score: Callable[[Condensed], float]) -> Condensed:
    """Return the S with the highest score among `CHECKS` evenly spaced steps.

    The last step is one of them; ties go to the later one.
    """
    # Why (decision 11): the last S is not the best one; all methods measure S with the same GCN.
    every = max(1, steps // CHECKS)
    best, highest = None, float("-inf")
    for number in range(1, steps + 1):
        learning.step(number - 1)
        if number % every == 0 or number == steps:
            candidate = learning.snapshot()
            value = score(candidate)
            if value >= highest:
                best, highest = candidate, value
    assert best is not None
    return best
