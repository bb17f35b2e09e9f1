"""The mechanisms of differential privacy on one model state: clipping and Gaussian noise."""

import secrets
from collections.abc import Mapping
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from dance_flwr.privacy.masks import key_stream
from dance_flwr.seeding import derive

State = dict[str, Tensor]
LARGEST_DEVIATE = 8.3  # of `NoiseStream`: the quantile of 2^-53 is -8.21


def clip(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], norm: float
) -> tuple[State, bool]:
    """Return (omega_0 + D * min(1, C / ||D||), whether it was clipped) with D = omega - omega_0.

    D spans all float entries, scalars included; a zero update stays zero. Integer buffers, which
    noise cannot hide, stay those of omega_0. If the norm is not finite, D = 0.

    Parameters
    ----------
    norm : C
    """
    change, was_clipped = clipped_update(state, start, norm)
    return updated(start, change), was_clipped


def updated(start: Mapping[str, Tensor], change: Mapping[str, Tensor]) -> State:
    """Return omega_0 + D, rounded once to the types of omega_0; D holds its float entries."""
    new = {
        name: (start[name].cpu().double() + part).to(start[name].dtype)
        for name, part in change.items()
    }
    return {name: new.get(name, start[name].cpu()) for name in start}


def clipped_update(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], norm: float
) -> tuple[State, bool]:
    """Return (D * min(1, C / ||D||) of the float entries in float64, whether it was clipped)."""
    change = {
        k: state[k].detach().cpu().double() - v.cpu().double()
        for k, v in start.items()
        if v.is_floating_point()
    }
    length = sqrt(sum(float(part.square().sum()) for part in change.values()))
    factor = 0.0 if not np.isfinite(length) else min(1.0, norm / length) if length else 1.0
    return {name: factor * part.nan_to_num() for name, part in change.items()}, factor < 1


def add_noise(state: Mapping[str, Tensor], deviation: float, draw: "NoiseStream") -> State:
    """Add independent Gaussian noise of this standard deviation to every float entry."""
    return {
        name: tensor
        + torch.from_numpy(deviation * draw.normal(tensor.numel()))
        .view(tensor.shape)
        .to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in state.items()
    }


class NoiseStream:
    """Normal deviates from a ChaCha20 stream: 52 bits each, through the inverse distribution.

    Parameters
    ----------
    key : 32 bytes; None = from the operating system
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._used = 0

    @classmethod
    def seeded(cls, seed: int, purpose: str, *, round_: int, client: int = -1) -> "NoiseStream":
        """Return a stream from the run's seed: for tests and studies, never for protection."""
        return cls(derive(seed, purpose, round_=round_, client=client).to_bytes(32, "little"))

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` standard normal deviates of the stream."""
        deviates: NDArray[np.float64] = ndtri(self.uniform(count))
        return deviates

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` numbers of the stream, uniform in (0, 1)."""
        words = self.words(count) >> np.uint64(12)
        numbers: NDArray[np.float64] = (words.astype(np.float64) + 0.5) / 2.0**52
        return numbers

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` integers of the stream, uniform from 0 to 2^64 - 1."""
        nonce = self._used.to_bytes(12, "little")
        self._used += 1
        return np.frombuffer(key_stream(self._key, nonce, 8 * count), "<u8").astype(np.uint64)
