"""Arrays on the wire are read as Flower reads them, whoever wrote them."""

from io import BytesIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from dance_flwr.federation.wire.tensors import arrays_of, in_types_of, numpy_of, state_of

STATE = {
    "weight": torch.randn(6, 4),
    "narrow": torch.zeros(3, dtype=torch.int8),
    "half": torch.randn(7).half(),
    "number": torch.tensor(3.5),
    "count": torch.arange(5),
    "empty": torch.zeros(0, 4),
    "mask": torch.tensor([True, False]),
}


def test_a_state_comes_back_as_it_was_and_may_be_changed():
    for record in (arrays_of(STATE), ArrayRecord({k: Array(v.numpy()) for k, v in STATE.items()})):
        found = state_of(record)
        for name, tensor in STATE.items():
            assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
        found["weight"].zero_()
        assert torch.equal(state_of(record)["weight"], STATE["weight"])


def test_a_model_has_the_types_of_its_start_and_is_itself_where_it_has_them():
    record = arrays_of(STATE)
    assert in_types_of(STATE, record) is record
    wide = arrays_of({name: tensor.double() for name, tensor in STATE.items()})
    for name, tensor in state_of(in_types_of(STATE, wide)).items():
        assert tensor.dtype == STATE[name].dtype and torch.equal(tensor, STATE[name])


def saved(values, version=None):
    """The bytes of an .npy file; numpy writes the order of the array into its header."""
    file = BytesIO()
    np.lib.format.write_array(file, values, version=version)
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_other_headers_are_read_by_numpy(version):
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for given in (values, np.ascontiguousarray(values), values.astype(">f8")):
        array = Array("float64", (2, 3), "numpy.ndarray", saved(given, version))
        np.testing.assert_array_equal(numpy_of(ArrayRecord({"a": array}))["a"], given)


def test_what_is_no_array_is_refused_as_flower_refuses_it():
    whole = saved(np.arange(6.0))
    for data in (whole[:-1], b"", b"x" * 200):
        array = Array("float64", (6,), "numpy.ndarray", data)
        with pytest.raises(Exception) as theirs:
            array.numpy()
        with pytest.raises(type(theirs.value)):
            numpy_of(ArrayRecord({"a": array}))


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (6,)), ("no-type", (6,)), ("float64", (7,))]
)
def test_the_header_decides_not_what_the_record_says(dtype, shape):
    array = Array(dtype, shape, "numpy.ndarray", saved(np.arange(6.0)))
    np.testing.assert_array_equal(numpy_of(ArrayRecord({"a": array}))["a"], np.arange(6.0))
