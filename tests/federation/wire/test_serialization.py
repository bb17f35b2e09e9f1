"""Tensors of a message as one array and back, and hostile input."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from support.graphs import EVERY_ROUND

from dance_flwr.federation.wire import messages
from dance_flwr.federation.wire.serialization import PACKED, is_packed, pack, unpack

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
STATES = st.dictionaries(
    st.text(min_size=1, max_size=8), st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=6
)


def message_with(state, **records):
    return Message(RecordDict({"arrays": messages.arrays_of(state), **records}), 1, "train")


@given(SHAPES, st.sampled_from([*DTYPES, torch.float16]), st.booleans())
def test_a_tensor_becomes_flowers_own_bytes(shape, dtype, turned):
    tensor = (torch.randn(shape) * 9).to(dtype)
    tensor = tensor.T if turned and tensor.dim() == 2 else tensor
    (found,) = messages.arrays_of({"w": tensor}).values()
    assert found.data == Array(tensor.contiguous()).data and torch.equal(
        torch.from_numpy(found.numpy()), tensor
    )
    assert (found.dtype, found.shape, found.stype) == (
        str(found.numpy().dtype),
        tuple(tensor.shape),
        "numpy.ndarray",
    )


@given(STATES)
def test_names_order_shapes_dtypes_and_bits_come_back(described):
    state = {name: (torch.randn(shape) * 9).to(dtype) for name, (shape, dtype) in described.items()}
    (there,) = pack([message_with(state)])
    assert list(there.content["arrays"]) == [PACKED]
    back = messages.state_of(unpack(there).content["arrays"])
    assert list(back) == list(state)
    for name, tensor in state.items():
        assert back[name].dtype == tensor.dtype and torch.equal(back[name], tensor), name


UNREADABLE = {
    f"{len(data)} bytes": Array(np.frombuffer(data, np.uint8))
    for data in (b"", b"\x00" * 9, b"\xff" * 64, np.random.default_rng(0).bytes(4096))
}
UNREADABLE |= {
    "another kind": Array(dtype="uint8", shape=(3,), stype="torch.tensor", data=b"abc"),
    "a name without a number": Array(np.frombuffer(save({"weight": np.ones(3)}), np.uint8)),
}


@pytest.mark.parametrize("array", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_has_no_tensors(array):
    message = Message(RecordDict({"arrays": ArrayRecord({PACKED: array})}), 1, "train")
    assert not unpack(message).content["arrays"]


def test_a_run_over_a_wire_is_the_run_without_one(run, dance, monkeypatch):
    from dance_flwr.runs.simulation.in_process import InProcessGrid

    seen = []
    monkeypatch.setattr(InProcessGrid, "crosses_a_wire", True)
    finished = run(**EVERY_ROUND, on_message=seen.append)
    trained = [
        message for message in seen if message.has_content() and message.content.array_records
    ]
    assert trained and all(map(is_packed, trained))
    assert finished.result["model_fingerprint"] == dance.result["model_fingerprint"]
    assert finished.result["history"][0]["bytes_up"] == dance.result["history"][0]["bytes_up"]
