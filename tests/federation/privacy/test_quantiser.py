"""Updates in few bits: the error of a round, and what an upload may not hold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.config.sections import FLOAT16, INT8
from dance_flwr.federation.privacy.quantiser import dequantise, quantise

VALUES = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12)
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT16, INT8])


def update(*values):
    """An update of a vector, a 0-d tensor and an empty one."""
    vector = torch.tensor(values, dtype=torch.float64)
    return {"w": vector, "scalar": vector[0].clone(), "empty": vector[:0].reshape(0, 2)}


@given(VALUES)
def test_the_error_of_int8_is_half_a_step(values):
    wanted = update(*values)
    sent = quantise(wanted, INT8)
    for (name, y), scale in zip(wanted.items(), sent.scales.tolist(), strict=True):
        error = (dequantise(sent)[name] - y).abs()
        assert bool((error <= scale * 0.5000001 + 1e-35).all())
        assert sent.tensors[name].dtype == torch.int8 and sent.tensors[name].shape == y.shape
        largest = float(y.abs().max()) if y.numel() else 0.0
        assert scale == pytest.approx(largest / 127, rel=1e-6, abs=2e-38)


@PRECISIONS
@given(VALUES)
def test_towards_zero_no_entry_grows(precision, values):
    wanted = update(*values)
    sent = dequantise(quantise(wanted, precision, toward_zero=True))
    for name, y in wanted.items():
        assert bool((sent[name].abs() <= y.abs() * (1 + 1e-6)).all())
        assert bool((sent[name] * y >= 0).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_pass_for_a_number(value):
    assert bool(quantise(update(1.0, value), INT8).scales[0].isnan())
    halves = quantise(update(1.0, float("nan")), FLOAT16)
    assert bool(halves.tensors["w"].isnan().any())
