"""Integers of b bits: nothing lost, nothing wasted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dance_flwr.privacy.bits import pack_bits, unpack_bits


@given(arrays(np.int64, st.integers(0, 70), elements=st.integers(0, 2**32 - 1)), st.integers(1, 32))
def test_the_lowest_bits_come_back(numbers, bits):
    data = pack_bits(numbers, bits)
    assert len(data) == 8 + -(-len(numbers) * bits // 8)
    assert unpack_bits(data, bits).tolist() == (numbers & (2**bits - 1)).tolist()


@pytest.mark.parametrize("bits", [1, 11, 19, 31])
def test_more_numbers_than_one_chunk(bits):
    numbers = np.random.default_rng(bits).integers(0, 2**bits, 2**17 + 13)
    assert np.array_equal(unpack_bits(pack_bits(numbers, bits), bits), numbers)


def test_by_hand():
    assert pack_bits(np.array([1, 2, 3]), 4)[8:] == bytes([0x21, 0x03])


@pytest.mark.parametrize("data", [b"", b"1234", pack_bits(np.arange(9), 11)[:-1], bytes(9)])
def test_another_length_is_refused(data):
    with pytest.raises(ValueError, match="numbers of 11 bits"):
        unpack_bits(data, 11)
