"""Dropout that is fast on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each entry with probability `rate` and scale the others by 1 / (1 - rate).

    Srivastava et al. 2014. On a CPU, `torch.nn.functional.dropout` draws its mask one Bernoulli
    number at a time, which is slower than uniform numbers and a comparison; other devices use it.
    """
    # Nothing to draw, or not with the CPU's generator, which is the slow one.
    if not training or rate == 0 or values.device.type != "cpu":
        return F.dropout(values, rate, training)
    mask = torch.rand(values.shape, dtype=torch.float32, device=values.device).ge_(rate)
    return values * mask.to(values.dtype).mul_(1 / (1 - rate))
