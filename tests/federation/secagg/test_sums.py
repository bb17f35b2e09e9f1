"""The masked vector: exact integers, updates on the grid, means independent of the order."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dance_flwr.config.sections import FLOAT16, FLOAT32, INT8
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.server import decode_integers, sum_format, unpack_bits
from dance_flwr.federation.secagg.sums import MAX_VALUE, check_bounded, encode_integers, pack_bits
from dance_flwr.methods.fixed_point import encode_update, to_steps

INTEGERS = st.integers(0, MAX_VALUE)


PRECISIONS = st.sampled_from([FLOAT32, FLOAT16, INT8])


@settings(deadline=None)
@given(st.lists(st.lists(INTEGERS, min_size=3, max_size=3), min_size=1, max_size=40), PRECISIONS)
def test_sums_of_integers_are_exact(clients, precision):
    form = sum_format(len(clients), precision)
    total = form.wrap(sum(encode_integers(values, form) for values in clients))
    assert decode_integers(total, form) == [sum(column) for column in zip(*clients, strict=True)]


@given(st.integers(1, 4000), PRECISIONS)
def test_the_largest_digits_of_all_clients_fit(clients, precision):
    form = sum_format(clients, precision)
    total = clients * encode_integers([MAX_VALUE], form)
    assert np.array_equal(form.wrap(total), total)
    assert decode_integers(total, form) == [clients * MAX_VALUE]
    assert form.digit_bits * form.digits >= 60 and form.digit_bits >= 6


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=60), PRECISIONS, st.sampled_from([1, -1])
)
def test_a_sum_at_the_bound_does_not_overflow(weights, precision, sign):
    """All clients send R: shares sum to 1, and each may be rounded up by half a step."""
    form, whole = sum_format(len(weights), precision), sum(weights)
    steps = [int(to_steps(np.array([sign * w / whole]), form.levels)[0]) for w in weights]
    assert int(form.wrap(np.array([sum(steps)]))[0]) == sum(steps)
    assert abs(sum(steps) - sign * form.levels / 2) <= len(weights) / 2
    # What each stores for Flower's quantisation fits into its 31 bits.
    stored = form.wrap(np.array(steps)) + form.offset
    assert stored.min() >= 0 and stored.max() < 2**31


@pytest.mark.parametrize(
    ("clients", "precision", "bits"),
    [(3, INT8, 10), (5, INT8, 11), (5, FLOAT16, 19), (100, INT8, 15), (5, FLOAT32, 32)],
)
def test_bits_of_a_masked_integer(clients, precision, bits):
    form = sum_format(clients, precision)
    assert form.bits == bits
    if precision != FLOAT32:  # one bit less would not do
        assert 2 ** (bits - 2) <= form.levels // 2 + clients


@pytest.mark.parametrize("value", [-1, MAX_VALUE + 1])
def test_integers_that_do_not_fit_are_refused(value):
    with pytest.raises(ValueError, match="2\\^60"):
        encode_integers([3, value], sum_format(5, FLOAT32))


@pytest.mark.parametrize("value", [1.5, -1.5, float("nan"), float("inf")])
def test_an_update_that_would_be_clipped_is_refused(value):
    start = {"w": torch.zeros(3)}
    update = encode_update({"w": torch.tensor([0.0, value, 0.0])}, start, 0.25, 1.0)
    with pytest.raises(UserError, match=r"raise privacy\.update-range"):
        check_bounded(update, 0.25, 1.0)


@given(arrays(np.int64, st.integers(0, 70), elements=st.integers(0, 2**32 - 1)), st.integers(1, 32))
def test_the_lowest_bits_come_back(numbers, bits):
    data = pack_bits(numbers, bits)
    assert len(data) == 8 + -(-len(numbers) * bits // 8)
    assert unpack_bits(data, bits).tolist() == (numbers & (2**bits - 1)).tolist()
