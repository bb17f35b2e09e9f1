"""Integers of b bits, without the bits that nobody needs."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD, _CHUNK = 32, 2**16  # a multiple of 8, so that a chunk ends with a byte


def pack_bits(numbers: NDArray[Any], bits: int) -> bytes:
    """Return the lowest `bits` bits of each number, one after the other, after their count.

    Parameters
    ----------
    numbers : [n] integers; bits : from 1 to 32

    Returns
    -------
    8 bytes with n, lowest first, and ceil(n * bits / 8) bytes
    """
    words = np.ascontiguousarray(numbers.ravel() & ((1 << bits) - 1), "<u4")
    parts = [struct.pack("<Q", words.size)]
    for start in range(0, words.size, _CHUNK):
        octets = words[start : start + _CHUNK].view(np.uint8).reshape(-1, 4)
        each = np.unpackbits(octets, axis=1, bitorder="little")[:, :bits]
        parts.append(np.packbits(each.ravel(), bitorder="little").tobytes())
    return b"".join(parts)


def unpack_bits(data: bytes, bits: int) -> NDArray[np.int64]:
    """Return the numbers of `pack_bits`, from 0 to 2^bits - 1; [n] int64.

    Raises
    ------
    ValueError : the length is not that of the count in front
    """
    count = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else -1
    if len(data) != 8 + -(-count * bits // 8):
        raise ValueError(
            f"expected numbers of {bits} bits after their count, found {len(data)} bytes"
        )
    numbers = np.zeros(count, np.int64)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        first = 8 + start * bits // 8
        octets = np.frombuffer(data, np.uint8, -(-size * bits // 8), first)
        each = np.unpackbits(octets, count=size * bits, bitorder="little").reshape(size, bits)
        wide = np.zeros((size, _WORD), np.uint8)
        wide[:, :bits] = each
        packed = np.packbits(wide, axis=1, bitorder="little")
        numbers[start : start + size] = packed.view("<u4").ravel()
    return numbers
