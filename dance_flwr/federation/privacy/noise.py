"""Unpredictable noise: a ChaCha20 stream, and normal and discrete Gaussian deviates.

A discrete Gaussian has P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers (Canonne,
Kamath and Steinke 2020). It is sampled exactly and in bulk: only integers are drawn and compared,
by rejection from a discrete Laplace distribution and Bernoulli(exp(-a / b)) by von Neumann's
series, so that no probability is rounded. Gaussian deviates as floats have gaps, which distinguish
values that the theory does not (Mironov 2012); integers have none.
"""

import secrets
from math import ceil

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
MAX_DEVIATE = 8.3  # of `NoiseStream.normal`: the quantile of 2^-53 is -8.21
MAX_SIGMA = 2**24  # squares of what is drawn then stay below 2^63


def key_stream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Return the ChaCha20 key stream from block 0; `key` has 32 bytes, `nonce` 12 (RFC 8439)."""
    counter = bytes(4)
    return Cipher(ChaCha20(key, counter + nonce), mode=None).encryptor().update(bytes(length))


class NoiseStream:
    """Random numbers from a ChaCha20 stream; normal deviates have 52 random bits.

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
        from dance_flwr.seeding import derive

        return cls(derive(seed, purpose, round_=round_, client=client).to_bytes(32, "little"))

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` standard normal deviates of the stream."""
        # Masks need only the key stream, in a process that starts for every message.
        from scipy.special import ndtri

        deviates: NDArray[np.float64] = ndtri(self.uniform(count))
        return deviates

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` numbers of the stream, uniform in (0, 1)."""
        # 52 bits and a half: exact in float64, and never 0 or 1, which have infinite quantiles.
        words = self.words(count) >> np.uint64(12)
        numbers: NDArray[np.float64] = (words.astype(np.float64) + 0.5) / 2.0**52
        return numbers

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` integers of the stream, uniform from 0 to 2^64 - 1."""
        # A nonce per call, so that no part of the stream is used twice.
        nonce = self._used.to_bytes(12, "little")
        self._used += 1
        return np.frombuffer(key_stream(self._key, nonce, 8 * count), "<u8").astype(np.uint64)


def discrete_gaussian(count: int, sigma: int, draw: NoiseStream) -> Integers:
    """Return [count] independent integers of the discrete Gaussian.

    Raises
    ------
    ValueError : sigma is not from 1 to `MAX_SIGMA`
    """
    if not 1 <= sigma <= MAX_SIGMA:
        raise ValueError(f"expected sigma from 1 to {MAX_SIGMA}, found {sigma}")
    parts, missing = [np.zeros(0, np.int64)], count
    while missing > 0:
        # 0.66 to 0.76 of the Laplace deviates pass, and 0.63 of their own candidates.
        y = _discrete_laplace(ceil(2.4 * missing) + 64, sigma, draw)
        gap = np.abs(y) - sigma
        parts.append(y[_bernoulli_exp(gap * gap, 2 * sigma * sigma, draw)][:missing])
        missing -= parts[-1].size
    return np.concatenate(parts)


def _discrete_laplace(count: int, scale: int, draw: NoiseStream) -> Integers:
    """Return up to `count` integers with P(x) proportional to exp(-|x| / scale)."""
    low = _below(scale, count, draw)
    low = low[_bernoulli_exp(low, scale, draw)]
    high = np.zeros_like(low)
    rising = np.arange(low.size)
    while rising.size:
        rising = rising[_bernoulli_exp(np.ones(rising.size, np.int64), 1, draw)]
        high[rising] += 1
    size = low + scale * high
    negative = _below(2, size.size, draw) == 1
    # Minus zero is rejected, or 0 would be twice as likely.
    signed: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]
    return signed


def _bernoulli_exp(above: Integers, below: int, draw: NoiseStream) -> Truths:
    """Return one truth per entry, true with probability exp(-above / below).

    Parameters
    ----------
    above : [n] from 0; below : from 1
    """
    whole, rest = np.divmod(above, below)
    true = _bernoulli_exp_fraction(rest, below, draw)
    for done in range(int(whole.max(initial=0))):
        left = np.flatnonzero(true & (whole > done))
        true[left] = _bernoulli_exp_fraction(np.full(left.size, below), below, draw)
    return true


def _bernoulli_exp_fraction(above: Integers, below: int, draw: NoiseStream) -> Truths:
    """Return `_bernoulli_exp` for above <= below.

    True where the first k with a false Bernoulli(above / (k below)) is odd (von Neumann's series).
    """
    true = np.zeros(above.size, np.bool_)
    undecided, k = np.arange(above.size), 1
    while undecided.size:
        going = _below(below * k, undecided.size, draw) < above[undecided]
        true[undecided[~going]] = k % 2 == 1
        undecided, k = undecided[going], k + 1
    return true


def _below(limit: int, count: int, draw: NoiseStream) -> Integers:
    """Return [count] integers, uniform from 0 to limit - 1; limit is below 2^62."""
    # Words beyond the last multiple of the limit are drawn again, or small integers would be more
    # likely.
    whole = 2**63 // limit * limit
    words: Integers = (draw.words(count) >> np.uint64(1)).astype(np.int64)
    while whole < 2**63 and (again := np.flatnonzero(words >= whole)).size:
        words[again] = (draw.words(again.size) >> np.uint64(1)).astype(np.int64)
    remainder: Integers = words % limit
    return remainder
