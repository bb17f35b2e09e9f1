"""min_X' E ||theta_N(X') - theta*||^2 / ||theta_s - theta*||^2: SFGC's trajectory matching.

Zheng et al., NeurIPS 2023. Experts are trained on the real graph; theta_s and theta* are two of
their snapshots. The student starts at theta_s and takes N steps of gradient descent on
(X', A' = I, Y'). Both are graph networks of two layers, with logits P relu(P LN(X) W + b) V + c and
P = D^-1/2 (A + I) D^-1/2, or P = I for the student, so that gradients are written out. N steps add
-rate * LN(X')^T (D_1 + .. + D_N) to W, D_i [K, h]: the student is unrolled in the space of its K
rows, by their Gram matrix, and the d x h weights are computed once, at the end.

Deviations: features are layer-normalised, as every backbone here normalises its input; the S with
the best validation accuracy is kept, not the one with the least error of a graph neural tangent
kernel's ridge regression.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.nn.propagation import propagated
from dance_flwr.seeding import generator
from dance_flwr_rivals.condensation.client import CondensingMethod, real_graph, validation_scorer
from dance_flwr_rivals.condensation.graphs import Condensed, RealGraph, layer_normalise
from dance_flwr_rivals.condensation.matching import condense
from dance_flwr_rivals.selected_core.client import k_center_rows, select_core
from dance_flwr_rivals.sfgc import SfgcConfig

EVERY = 5  # steps of an expert between two possible starts
_RATE_STEP, _RATE_MOMENTUM = 1e-6, 0.5  # of SGD on the student's rate, as in the public code


class Weights(NamedTuple):
    """Parameters theta of a network, or of R networks stacked in a first dimension.

    Attributes
    ----------
    first : W [d, h]; bias : b [h]; second : V [h, C]; shift : c [C]
    """

    first: Tensor
    bias: Tensor
    second: Tensor
    shift: Tensor

    @classmethod
    def draw(
        cls, dim: int, hidden: int, classes: int, generator: torch.Generator, device: torch.device
    ) -> "Weights":
        """Draw W, V uniformly within sqrt(6 / (in + out)) (Glorot and Bengio 2010); b = c = 0."""
        first, second = (
            (torch.rand(size, generator=generator).to(device) * 2 - 1) * (6 / sum(size)) ** 0.5
            for size in ((dim, hidden), (hidden, classes))
        )
        return cls(first, first.new_zeros(hidden), second, first.new_zeros(classes))

    def descend(self, gradient: "Weights", rate: float) -> "Weights":
        """Return theta - rate * gradient."""
        return Weights(*(part - rate * slope for part, slope in zip(self, gradient, strict=True)))


@dataclass(frozen=True)
class ExpertData:
    """The inputs and targets of an expert.

    Attributes
    ----------
    inputs : P LN(X), [n, d]
    hop : P, [n, n] sparse
    nodes : [m] int64, training nodes
    targets : [m, C] one-hot
    """

    inputs: Tensor
    hop: Tensor
    nodes: Tensor
    targets: Tensor

    @classmethod
    def of(cls, real: RealGraph, classes: int) -> "ExpertData":
        """Return the labelled training nodes of a client."""
        nodes = torch.nonzero(real.labels >= 0).flatten()
        targets = F.one_hot(real.labels[nodes], classes).to(real.features.dtype)
        return cls(
            propagated(real.operator, layer_normalise(real.features)), real.operator, nodes, targets
        )

    def gradient(self, theta: Weights) -> Weights:
        """Return the gradient of the mean cross-entropy of the training nodes."""
        # Forward: the loss covers training nodes alone, which read the hidden rows of their
        # neighbours.
        hidden = torch.relu(self.inputs @ theta.first + theta.bias)
        spread = propagated(self.hop, hidden)[self.nodes]
        residuals = (
            torch.softmax(spread @ theta.second + theta.shift, dim=1) - self.targets
        ) / len(self.nodes)
        # Backward, written out: through V, one hop, and the ReLU.
        back = torch.zeros_like(hidden)
        back[self.nodes] = residuals @ theta.second.T
        back = propagated(self.hop, back) * (hidden > 0)  # P is symmetric
        return Weights(self.inputs.T @ back, back.sum(0), spread.T @ residuals, residuals.sum(0))


def trajectory(
    theta: Weights, data: ExpertData, rate: float, steps: Collection[int]
) -> dict[int, Weights]:
    """Return theta after each of the given numbers of full-batch steps: number -> theta."""
    path = {}
    for step in range(max(steps) + 1):
        # Only snapshots at which a student may start or end are kept.
        if step in steps:
            path[step] = theta
        if step < max(steps):
            theta = theta.descend(data.gradient(theta), rate)
    return path


def trajectory_loss(
    nodes: Tensor, targets: Tensor, start: Weights, goal: Weights, steps: int, rate: Tensor
) -> Tensor:
    """L = ||theta_N - theta*||^2 / ||theta_s - theta*||^2, a scalar; 1 where N = 0.

    theta_(i+1) = theta_i - rate * grad of the mean cross-entropy of relu(Z W + b) V + c on the rows
    of Z.

    Parameters
    ----------
    nodes : Z = LN(X'), [K, d], with a gradient
    targets : [K, C] one-hot
    start, goal : theta_s, theta*
    steps : N
    rate : learning rate of the student, a scalar with a gradient
    """
    # Z W changes by Z Z^T D, so that the Gram matrix is all that the steps need.
    gram = nodes @ nodes.T + 1  # + 1 for the bias
    hidden, second, shift = nodes @ start.first + start.bias, start.second, start.shift
    total = torch.zeros_like(hidden)
    # N steps of descent; the graph of operations is recorded for the gradient of X'.
    for _ in range(steps):
        active = torch.relu(hidden)
        residuals = rate / len(targets) * (torch.softmax(active @ second + shift, dim=1) - targets)
        back = residuals @ second.T * (hidden > 0)
        second, shift = second - active.T @ residuals, shift - residuals.sum(0)
        hidden, total = hidden - gram @ back, total + back
    # The d x h weights once, from the sum of all D_i.
    final = (start.first - nodes.T @ total, start.bias - total.sum(0), second, shift)
    return _squared_distance(final, goal) / _squared_distance(start, goal)


def _squared_distance(left: Iterable[Tensor], right: Iterable[Tensor]) -> Tensor:
    return torch.stack(
        [(one - other).square().sum() for one, other in zip(left, right, strict=True)]
    ).sum()


class TrajectoryMatching:
    """Learns X' so that a student on it reproduces the trajectories of experts.

    X' starts as a k-centre coreset of the training nodes, class by class, measured in P^2 LN(X).

    Parameters
    ----------
    quotas : [C] int64, K_c, at least one node in all
    hidden : h of experts and student
    generator : a CPU generator, the only source of randomness
    """

    def __init__(
        self,
        real: RealGraph,
        quotas: Tensor,
        hidden: int,
        settings: SfgcConfig,
        generator: torch.Generator,
    ) -> None:
        classes, device = len(quotas), real.features.device
        # As in the public code, X' starts at a k-centre coreset; A' = I from the start, where the
        # code uses the coreset's own edges once.
        rows = select_core(real.propagated(), real.labels, quotas, k_center_rows, generator)
        rows = rows[torch.sort(real.labels[rows], stable=True).indices]
        self.labels = real.labels[rows]
        self.features = layer_normalise(real.features)[rows].clone().requires_grad_()
        self.rate = torch.tensor(settings.student_rate, device=device, requires_grad=True)
        self.starts = range(0, settings.latest_start + 1, EVERY)
        data = ExpertData.of(real, classes)
        # Starts and their targets.
        snapshots = {*self.starts, *(start + settings.span for start in self.starts)}
        self.experts = []
        # Experts of the run's width, as the network that is trained on S has it.
        for _ in range(settings.experts):
            theta = Weights.draw(real.features.size(1), hidden, classes, generator, device)
            self.experts.append(trajectory(theta, data, settings.expert_rate, snapshots))
        self._targets = F.one_hot(self.labels, classes).to(real.features.dtype)
        self._settings, self._generator = settings, generator
        self._optimizers = (
            torch.optim.Adam([self.features], lr=settings.feature_rate),
            torch.optim.SGD([self.rate], lr=_RATE_STEP, momentum=_RATE_MOMENTUM),
        )

    def step(self, number: int) -> float:
        """Match one segment of one expert; return the loss before X' and the student's rate move.

        A student that diverges, so that gradients are not finite, moves nothing.
        """
        expert = self.experts[self._draw(len(self.experts))]
        start = self.starts[self._draw(len(self.starts))]
        ends = expert[start], expert[start + self._settings.span]
        loss = trajectory_loss(
            layer_normalise(self.features), self._targets, *ends, self._settings.unroll, self.rate
        )
        slopes = torch.autograd.grad(loss, (self.features, self.rate))
        # A student that diverges moves nothing; the public code stops there.
        if all(bool(torch.isfinite(slope).all()) for slope in slopes):
            self.features.grad, self.rate.grad = slopes
            for optimizer in self._optimizers:
                optimizer.step()
            # Below 0 the student would climb.
            self.rate.detach().clamp_(min=0)
        return float(loss.detach())

    def _draw(self, below: int) -> int:
        return int(torch.randint(below, (1,), generator=self._generator))

    @torch.no_grad()
    def snapshot(self) -> Condensed:
        """Return the current S; A' is empty, an operator adds the self loops."""
        return Condensed(
            self.labels,
            self.features.detach().clone(),
            self.features.new_zeros((len(self.labels),) * 2),
        )


class Sfgc(CondensingMethod):
    """The plain network on synthetic nodes without edges that match training trajectories."""

    section = SfgcConfig

    def condense(self, data: ClientData, config: RunConfig, quotas: Tensor) -> Condensed:
        """Match the trajectories of networks trained on the client's training graph."""
        settings, score = SfgcConfig.of(config), validation_scorer(data, config)
        draws = generator(config.seed, "condense", client=data.card.client)
        matching = TrajectoryMatching(real_graph(data), quotas, config.hidden_dim, settings, draws)
        return condense(matching.step, matching.snapshot, settings.steps, score)
