"""Appendix "Differential Privacy Implementation Details": Laplace noise on the condensed features.

The paper's study of robustness, not a guarantee: condensed features never leave a client, and what
does leave it, the update, is not bounded by noise on them. What bounds an update is
`dance_flwr.privacy.dp`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def laplace_like(features: Tensor, scale: float) -> Tensor | None:
    """Return Laplace(0, b) noise for a [K, d] matrix, from torch's generator; None for b = 0."""
    if not scale:
        return None
    noise: Tensor = torch.distributions.Laplace(0.0, scale).sample(features.shape).to(features)
    return noise


def perturb(features: Tensor, noise: Tensor | None) -> Tensor:
    """X~ = sqrt(d) * normalise(X + noise), rows of l2 norm sqrt(d); [K, d]. Without noise X.

    The paper normalises to 1. Rows of X come out of a layer norm and have norm sqrt(d) at
    inference, where no noise is added; the factor keeps training on the same scale.
    """
    if noise is None:
        return features
    unit: Tensor = F.normalize(features + noise, dim=1)
    return unit * float(features.size(1) ** 0.5)
