"""min over S of E_theta sum_c D(grad L_c(S; theta), grad L_c(G; theta)): gradient matching of GCond
(Jin et al. 2022).

The matching network is the simplified graph convolution of the public code on Cora and CiteSeer,
logits Z W + b with Z = P^2 LN(X), P = D^-1/2 (A + I) D^-1/2, so the gradient of the loss of class c
has a closed form: (1 / n_c) sum over nodes of c of z (softmax(zW + b) - y)^T. It is written out,
and S is reached by one backward pass.

Deviations: features are layer-normalised on both sides, as every backbone here normalises what it
reads; the full graph with the class masked instead of sampled neighbourhoods, the same expectation;
no feature-smoothness term (its weight is 0 in the public runs); the S of the best validation
accuracy is kept, not the last.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.methods.condensation.adjacency import PairNetwork, normalised
from dance_flwr.methods.condensation.config import CondenseConfig
from dance_flwr.methods.condensation.distances import DISTANCES

HOPS = 2
CHECKS = 10  # how often S is tried on validation
_NETWORK_RATE = 0.01
_CYCLE, _ADJACENCY_TURN = (
    50,
    10,
)  # of 50 epochs the first 10 move the adjacency, the others the features


@dataclass(frozen=True)
class Condensed:
    """S = (X', A', Y').

    Attributes
    ----------
    labels : [K] int64, sorted; features : [K, d] float32, in layer-normalised coordinates
    adjacency : [K, K] float32 in [0, 1], symmetric, zero diagonal
    """

    labels: Tensor
    features: Tensor
    adjacency: Tensor


@dataclass(frozen=True)
class RealGraph:
    """What condensation reads of a client.

    Attributes
    ----------
    features : [n, d] float32; operator : [n, n] sparse, kind "gcn"; labels : [n] int64 training
        labels, -1 elsewhere
    """

    features: Tensor
    operator: Tensor
    labels: Tensor

    def propagated(self) -> Tensor:
        """Z = P^2 LN(X), [n, d]."""
        hidden = standard(self.features)
        for _ in range(HOPS):
            hidden = self.operator @ hidden
        return hidden


@dataclass
class Network:
    """theta = (W, b) of the matching network: W [d, C], b [C]."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def drawn(
        cls, dim: int, classes: int, generator: torch.Generator, device: torch.device
    ) -> "Network":
        """Draw theta as `nn.Linear` does: uniform within 1 / sqrt(d)."""
        values = (torch.rand(dim + 1, classes, generator=generator).to(device) * 2 - 1) / dim**0.5
        return cls(values[:dim], values[dim])

    def residuals(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """softmax(Z W + b) - Y, [m, C]: what the cross-entropy sends back to the logits."""
        return torch.softmax(hidden @ self.weight + self.bias, dim=1) - F.one_hot(
            labels, len(self.bias)
        )


def standard(features: Tensor) -> Tensor:
    """LN(x) without parameters, as the backbones do with what they read."""
    return F.layer_norm(features, features.shape[-1:])


def class_gradients(network: Network, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """G_c = (1 / n_c) sum_(y_i = c) z_i r_i^T and the same of the bias; ([C, d, C], [C, C]), zeros
    without nodes.

    Parameters
    ----------
    hidden : [m, d], Z; labels : [m] int64, sorted
    """
    classes = len(network.bias)
    sizes = torch.bincount(labels, minlength=classes).tolist()
    rows = (
        torch.split_with_sizes(part, sizes) for part in (hidden, network.residuals(hidden, labels))
    )
    parts = list(zip(*rows, strict=True))
    weights = torch.stack([z.T @ r / max(1, len(r)) for z, r in parts])
    return weights, torch.stack([r.sum(0) / max(1, len(r)) for _, r in parts])


def matching_loss(
    network: Network, condensed: tuple[Tensor, Tensor], real: tuple[Tensor, Tensor], kind: str
) -> Tensor:
    """L = sum_c (K_c / max K_c) D(G'_c, G_c), a scalar.

    Parameters
    ----------
    condensed, real : (Z, labels), labels sorted; only the first one gets a gradient
    kind : name in `DISTANCES`
    """
    with torch.no_grad():
        wanted = class_gradients(network, *real)
    return distance_to(wanted, network, condensed, kind)


def distance_to(
    wanted: tuple[Tensor, Tensor], network: Network, condensed: tuple[Tensor, Tensor], kind: str
) -> Tensor:
    """L = sum_c (K_c / max K_c) D(G'_c, G_c) to gradients `wanted` that are known; as
    `matching_loss`.
    """
    sizes = torch.bincount(condensed[1], minlength=len(network.bias))
    distance = DISTANCES[kind](class_gradients(network, *condensed), wanted)
    return (sizes / sizes.max() * distance).sum()


def initial_graph(
    labels: Tensor, quotas: Tensor, generator: torch.Generator, released: bool = False
) -> tuple[Tensor, Tensor]:
    """Return (Y' [K], the real training nodes [K] whose features start X'); row i of both has the
    same class.

    Nodes are drawn without repetition within a class. `released` is the public code's mismatch (its
    issue 17): labels by ascending frequency of the class in the training nodes, features by class
    number.

    Parameters
    ----------
    labels : [n] int64 training labels, -1 elsewhere; quotas : [C] int64
    """
    order = list(range(len(quotas)))
    drawn = []
    for number in order:
        nodes = torch.nonzero(labels == number).flatten()
        pick = torch.randperm(nodes.numel(), generator=generator)[: int(quotas[number])]
        drawn.append(nodes[pick.to(nodes.device)])
    if released:
        sizes = torch.bincount(labels[labels >= 0], minlength=len(quotas))
        order = torch.sort(sizes, stable=True).indices.tolist()
    places = torch.tensor(order, device=labels.device)
    return torch.repeat_interleave(places, quotas.to(labels.device)[places]), torch.cat(drawn)


class Matching:
    """S while it is learnt: free features X', and the pair network that makes A' of them.

    Rows are sorted by class inside, whatever the order in which they start.
    """

    def __init__(
        self, real: RealGraph, quotas: Tensor, settings: CondenseConfig, generator: torch.Generator
    ) -> None:
        labels, nodes = initial_graph(real.labels, quotas, generator, settings.released_code)
        order = torch.sort(labels, stable=True).indices
        self.labels = labels[order]
        self.features = standard(real.features)[nodes][order].clone().requires_grad_()
        self.pairs = PairNetwork(real.features.size(1)).to(real.features.device)
        known = torch.nonzero(real.labels >= 0).flatten()
        known = known[torch.sort(real.labels[known], stable=True).indices]
        self._real = real.propagated()[known], real.labels[known]
        self._settings, self._generator, self._classes = settings, generator, len(quotas)
        self._optimizers = (
            torch.optim.Adam(self.pairs.parameters(), lr=settings.adjacency_rate),
            torch.optim.Adam([self.features], lr=settings.feature_rate),
        )

    def propagated(self) -> Tensor:
        """Z' = P'^2 LN(X'), [K, d]."""
        hidden = standard(self.features)
        operator = normalised(self.pairs(hidden))
        for _ in range(HOPS):
            hidden = operator @ hidden
        return hidden

    def epoch(self, number: int) -> float:
        """Match one fresh network `outer` times; return the last loss."""
        settings, turn = self._settings, int(number % _CYCLE >= _ADJACENCY_TURN)
        network = Network.drawn(
            self.features.size(1), self._classes, self._generator, self.features.device
        )
        train = torch.optim.Adam([network.weight, network.bias], lr=_NETWORK_RATE)
        value = 0.0
        for step in range(settings.outer):
            value = self._step(network, turn)
            if step < settings.outer - 1 and settings.inner:
                with torch.no_grad():
                    self._train(network, train)
        return value

    def _step(self, network: Network, turn: int) -> float:
        """Move the adjacency (turn 0) or the features (turn 1) by one step."""
        optimizer = self._optimizers[turn]
        self.features.requires_grad_(bool(turn))
        self.pairs.requires_grad_(not turn)
        optimizer.zero_grad()
        loss = matching_loss(
            network, (self.propagated(), self.labels), self._real, self._settings.distance
        )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def _train(self, network: Network, optimizer: torch.optim.Optimizer) -> None:
        """Train theta on S as it is now for `inner` steps of the mean cross-entropy."""
        hidden = self.propagated()
        for _ in range(self._settings.inner):
            residuals = network.residuals(hidden, self.labels) / len(self.labels)
            network.weight.grad, network.bias.grad = hidden.T @ residuals, residuals.sum(0)
            optimizer.step()

    @torch.no_grad()
    def snapshot(self) -> Condensed:
        """Return S as it is now."""
        features = self.features.detach().clone()
        adjacency = self.pairs(standard(features))
        # A sigmoid rounds by its place in a vector register: a_ij and a_ji may differ in the last
        # bit.
        return Condensed(self.labels, features, torch.maximum(adjacency, adjacency.T))


def losses(matching: Matching, steps: int) -> Iterator[float]:
    """Run `steps` epochs and yield the loss of each."""
    for number in range(steps):
        yield matching.epoch(number)


def condense(
    real: RealGraph,
    quotas: Tensor,
    settings: CondenseConfig,
    generator: torch.Generator,
    score: Callable[[Condensed], float],
) -> Condensed:
    """Return the S of the highest score among `CHECKS` evenly spaced epochs; the latest among
    equals.

    Parameters
    ----------
    quotas : [C] int64, at least one node in all
    generator : a CPU generator; the only source of randomness but for the pair network's
        initialisation, which reads torch's own
    score : validation accuracy of a network trained on S
    """
    matching = Matching(real, quotas, settings, generator)
    return best_of(losses(matching, settings.steps), settings.steps, matching.snapshot, score)


def best_of(
    learning: Iterable[float],
    steps: int,
    snapshot: Callable[[], Condensed],
    score: Callable[[Condensed], float],
) -> Condensed:
    """Let `steps` steps of learning pass; return the S of the highest score among `CHECKS` evenly
    spaced ones.

    The latest among equals; the last step is one of them.

    Parameters
    ----------
    learning : one entry per step, at least one; snapshot : S as it is now
    """
    every = max(1, steps // CHECKS)
    best, highest = None, float("-inf")
    for number, _ in enumerate(learning, start=1):
        if number % every == 0 or number == steps:
            found = snapshot()
            value = score(found)
            if value >= highest:
                best, highest = found, value
    assert best is not None
    return best
