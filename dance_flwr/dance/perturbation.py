"""Appendix "Differential Privacy Implementation Details": Laplace noise on the condensed features.

The paper's study of robustness, not a guarantee: condensed features never leave a client, and noise
on them does not bound the update, which does. `dance_flwr.federation.privacy.dp` bounds updates.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def laplace_like(features: Tensor, scale: float) -> Tensor | None:
    """Return Laplace(0, b) noise, [K, d], from torch's global generator; None if b = 0."""
    if not scale:
        return None
    noise: Tensor = torch.distributions.Laplace(0.0, scale).sample(features.shape).to(features)
    return noise


def perturb(features: Tensor, noise: Tensor | None) -> Tensor:
    """X~ = sqrt(d) * normalise(X + noise), rows of l2 norm sqrt(d); [K, d]. X without noise.

    The paper normalises to 1. Rows of X are the output of a layer norm and have norm sqrt(d) at
    inference, where no noise is added; the factor keeps training on the same scale.
    """
    if noise is None:
        return features
    unit: Tensor = F.normalize(features + noise, dim=1)
    return unit * float(features.size(1) ** 0.5)
