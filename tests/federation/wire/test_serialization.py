"""Tensors of a message as one array and back, and hostile input."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from support.graphs import EVERY_ROUND

from dance_flwr.federation.wire import messages
from dance_flwr.federation.wire.serialization import (
    PACKED,
    answer_packed,
    bytes_of,
    is_packed,
    pack,
    unpack,
)

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


def test_a_model_is_a_few_objects_on_the_wire_and_no_larger():
    state = {f"layer.{i}": torch.randn(16, 16) for i in range(20)}
    plain = message_with(state, config=ConfigRecord({"server-round": 1}))
    (there,) = pack([plain])
    assert len(get_all_nested_objects(there)) == 6 and len(get_all_nested_objects(plain)) == 44
    assert bytes_of(there) <= bytes_of(plain)
    assert unpack(there).content["config"] == {"server-round": 1}


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


def test_a_model_for_many_clients_is_packed_once():
    content = message_with({"w": torch.ones(2)}).content
    first, second, other = pack(
        [
            Message(content, 1, "train"),
            Message(content, 2, "train"),
            message_with({"w": torch.zeros(2)}),
        ]
    )
    assert first.content["arrays"] is second.content["arrays"]
    assert (first.metadata.dst_node_id, second.metadata.dst_node_id) == (1, 2)
    assert messages.state_of(unpack(other).content["arrays"])["w"].sum() == 0


def test_a_client_answers_as_it_was_asked():
    def train(message, context):
        assert not is_packed(message)
        return Message(
            RecordDict({**message.content, "metrics": MetricRecord({"loss": 1.0})}),
            reply_to=message,
        )

    context = Context(1, 1, {}, RecordDict(), {})
    plain = message_with({"w": torch.ones(2)})
    assert not is_packed(answer_packed(plain, context, train))
    reply = answer_packed(pack([plain])[0], context, train)
    assert is_packed(reply) and unpack(reply).content["arrays"] == plain.content["arrays"]
    without = Message(RecordDict({"config": ConfigRecord({"a": 1})}), 1, "query")
    assert pack([without])[0] is without and unpack(without) is without


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
