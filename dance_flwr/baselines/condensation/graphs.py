"""The real graph of a client, and the synthetic one that it is condensed to."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

HOPS = 2


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
    """The part of a client's data that condensation reads.

    Attributes
    ----------
    features : [n, d] float32
    operator : [n, n] sparse, of kind "gcn"
    labels : [n] int64 training labels, -1 elsewhere
    """

    features: Tensor
    operator: Tensor
    labels: Tensor

    def propagated(self) -> Tensor:
        """Z = P^2 LN(X), [n, d]."""
        hidden = layer_normalise(self.features)
        for _ in range(HOPS):
            hidden = self.operator @ hidden
        return hidden

    def nodes_by_class(self) -> Tensor:
        """Return the labelled nodes sorted by class, then by number; [m] int64."""
        known = torch.nonzero(self.labels >= 0).flatten()
        return known[torch.sort(self.labels[known], stable=True).indices]


def layer_normalise(features: Tensor) -> Tensor:
    """LN(x) without parameters, as backbones normalise their input."""
    return F.layer_norm(features, features.shape[-1:])
