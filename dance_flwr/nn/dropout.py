"""Dropout that does not dominate a round on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each entry with probability `rate` and scale the others by 1 / (1 - rate) (Srivastava et
    al. 2014).

    `torch.nn.functional.dropout` draws its mask on a CPU one Bernoulli number at a time, slower
    than uniform numbers and a comparison; on other devices it is used as it is.
    """
    if not training or rate == 0 or values.device.type != "cpu":
        return F.dropout(values, rate, training)
    mask = torch.rand(values.shape, dtype=torch.float32) >= rate
    return values * mask.to(values.dtype).mul_(1 / (1 - rate))
