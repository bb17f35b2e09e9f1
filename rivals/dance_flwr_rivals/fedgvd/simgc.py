"""min_S NLL(f(S), Y') + w_a L_align + w_s L_smooth: SimGC's condensation by class statistics.

Xiao et al., "Simple Graph Condensation", 2024, as FedGVD (Dai et al., CIKM 2025) uses it. The
teacher f is a linear network of two layers on P^2 LN(X), P = D^-1/2 (A + I) D^-1/2, trained on the
real graph and then frozen. It must classify S = (X', A', Y'); S must have the means and standard
deviations of the real classes over U = [X || P X || P^2 X], and must link similar nodes.

Deviations: features are layer-normalised, as every backbone here normalises its input; the teacher
is narrower and trained for fewer steps (2048 and 1000 in the public code); X' starts as noise with
the classes' means and deviations, not as rows of X, since S is uploaded; the smoothness is SimGC's
squared distance, where FedGVD's code has the exponential of its negative, which rewards links
between dissimilar nodes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr_rivals.condensation.adjacency import normalise
from dance_flwr_rivals.condensation.graphs import Condensed, RealGraph, layer_normalise, spread
from dance_flwr_rivals.condensation.matching import LearntGraph
from dance_flwr_rivals.fedgvd import FedGvdConfig

# As in the public code.
LEAST = 0.01  # smaller entries of A' are no edges
_TEACHER_RATE, _CHECK_EVERY = 1e-3, 10
_TINY = 1e-12


def class_statistics(values: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return (mean_c, std_c) over the rows of each class, [C, D] each.

    The deviation divides by n_c - 1. Both are 0 without rows; the deviation is 0 with one row.
    """
    member = F.one_hot(labels, classes).to(values.dtype)
    # At least 1 in both divisors: a class without rows has zeros, one with a single row no
    # deviation.
    sizes = member.sum(0)[:, None]
    mean = member.T @ values / sizes.clamp(min=1)
    variance = member.T @ (values - mean[labels]).square() / (sizes - 1).clamp(min=1)
    # _TINY keeps the gradient finite where all rows are equal.
    return mean, torch.where(sizes > 1, (variance + _TINY).sqrt(), 0.0)


def align_loss(
    condensed: tuple[Tensor, Tensor], real: tuple[Tensor, Tensor], both: Tensor, shares: Tensor
) -> Tensor:
    """L_align = sum_c k_c (MSE(mean_c, mean'_c) + MSE(std_c, std'_c)) / sum_c k_c, a scalar.

    Parameters
    ----------
    condensed, real : (mean, std), [C, D] each
    both : [C] bool, classes with at least two rows on both sides; the others have no deviation to
        compare
    shares : k_c = K_c / max K, [C]; 0 for absent classes
    """
    means, deviations = (
        (left - right).square().mean(1) for left, right in zip(condensed, real, strict=True)
    )
    return (shares * (means + both * deviations)).sum() / shares.sum()


def smooth_loss(features: Tensor, adjacency: Tensor) -> Tensor:
    """L_smooth = sum_ij A'_ij mean_f (x'_i - x'_j)^2 / sum_ij A'_ij, a scalar; 0 without edges."""
    square = features.square().sum(1)
    # |x - y|^2 = |x|^2 + |y|^2 - 2 x y; rounding may bring it below 0.
    apart = (square[:, None] + square - 2 * features @ features.T).clamp(min=0) / features.size(1)
    return (adjacency * apart).sum() / adjacency.sum().clamp(min=_TINY)


def train_teacher(
    real: RealGraph, classes: int, settings: FedGvdConfig, labels: Tensor, validation: Tensor
) -> nn.Sequential:
    """Train f(Z) = (Z W + b) V + c on Z = P^2 LN(X) with Adam at 0.001; return it frozen.

    The parameters are those with the best validation accuracy. Draws from torch's global generator.

    Parameters
    ----------
    labels : [n] int64, of every split
    validation : [m] int64, labelled validation nodes; without any the last parameters are returned
    """
    hidden, known = real.propagated(), real.labels >= 0
    width, dim = settings.teacher_width, hidden.size(1)
    teacher = nn.Sequential(nn.Linear(dim, width), nn.Linear(width, classes)).to(hidden.device)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=_TEACHER_RATE, fused=True)
    # -1, so that the first check sets the parameters even without a hit.
    best, highest = {}, -1
    for step in range(1, settings.teacher_steps + 1):
        optimizer.zero_grad()
        F.cross_entropy(teacher(hidden[known]), real.labels[known]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % _CHECK_EVERY == 0 or step == settings.teacher_steps:
            with torch.no_grad():
                hits = int((teacher(hidden[validation]).argmax(1) == labels[validation]).sum())
            # Ties go to the later parameters, which are trained longer.
            if hits >= highest:
                state = teacher.state_dict().items()
                highest, best = hits, {name: tensor.clone() for name, tensor in state}
    teacher.load_state_dict(best)
    return teacher.requires_grad_(False)


def draw_features(
    features: Tensor, labels: Tensor, rows: Tensor, classes: int, generator: torch.Generator
) -> Tensor:
    """x'_i = mean_c + std_c * z, z ~ N(0, I), c the class of row i; [K, d].

    A class with one node gets the deviation of all labelled nodes, or 1 if there is only one
    labelled node, so that no row of X can be read from X'.

    Parameters
    ----------
    features : [m, d]
    labels : [m] int64
    rows : [K] int64, classes of the rows to draw
    """
    mean, deviation = class_statistics(features, labels, classes)
    _, overall = class_statistics(features, torch.zeros_like(labels), 1)
    # A deviation of 0 would upload the embedding of a class's only node.
    several = (torch.bincount(labels, minlength=classes) > 1)[:, None]
    deviation = torch.where(several, deviation, overall if len(features) > 1 else 1.0)
    # Noise and not real rows, because S is uploaded.
    noise = torch.randn(len(rows), features.size(1), generator=generator).to(features.device)
    return mean[rows] + deviation[rows] * noise


class StatisticsMatching(LearntGraph):
    """Learns S by a teacher and the statistics of the classes.

    Parameters
    ----------
    quotas : [C] int64, K_c, at least one node in all
    teacher : frozen, [*, d] -> [*, C]
    generator : a CPU generator, of the first features and the edges
    """

    def __init__(
        self,
        real: RealGraph,
        quotas: Tensor,
        teacher: nn.Module,
        settings: FedGvdConfig,
        generator: torch.Generator,
    ) -> None:
        classes, device = len(quotas), real.features.device
        known = torch.nonzero(real.labels >= 0).flatten()
        labels, features = real.labels[known], layer_normalise(real.features)
        rows = torch.repeat_interleave(torch.arange(classes, device=device), quotas.to(device))
        start = draw_features(features[known], labels, rows, classes, generator)
        super().__init__(rows, start, settings.adjacency_rate, settings.feature_rate)
        self._real = class_statistics(
            torch.cat(spread(features, real.operator), dim=1)[known], labels, classes
        )
        sizes = torch.bincount(labels, minlength=classes)
        # A deviation needs two rows on both sides.
        self._both = (sizes > 1) & (quotas.to(device) > 1)
        self._shares = (quotas / quotas.max()).to(device)
        self._teacher, self._settings, self._generator = teacher, settings, generator

    def loss(self) -> Tensor:
        """Return the loss L of the current S, a scalar."""
        settings, features = self._settings, layer_normalise(self.features)
        adjacency = self._adjacency(features)
        hops = spread(features, normalise(adjacency))
        # The teacher reads the last hop, on which it was trained.
        known = F.cross_entropy(self._teacher(hops[-1]), self.labels)
        statistics = class_statistics(torch.cat(hops, dim=1), self.labels, len(self._shares))
        aligned = align_loss(statistics, self._real, self._both, self._shares)
        return (
            known
            + settings.align_weight * aligned
            + settings.smooth_weight * smooth_loss(features, adjacency)
        )

    @torch.no_grad()
    def snapshot(self) -> Condensed:
        """Return the current S with drawn edges: A_ij = A_ji ~ Bernoulli(A'_ij)."""
        features = self.features.detach().clone()
        probabilities = self._adjacency(layer_normalise(features))
        draws = torch.rand(probabilities.shape, generator=self._generator).to(probabilities.device)
        # One draw for both directions keeps the graph symmetric.
        upper = torch.triu(draws < probabilities, 1).to(probabilities.dtype)
        return Condensed(self.labels, features, upper + upper.T)

    def _adjacency(self, features: Tensor) -> Tensor:
        adjacency = self.pairs(features)
        return adjacency * (adjacency >= LEAST)  # type: ignore[no-any-return]
