"""Rounded uploads are checked as strictly as whole models: one test per lie."""

import math

import pytest
import torch
from flwr.app import Message, RecordDict

from dance_flwr.config.sections import FLOAT16, FLOAT32, INT8
from dance_flwr.federation.privacy.quantiser import quantise
from dance_flwr.federation.server.checks import read_upload
from dance_flwr.federation.wire import keys, messages
from dance_flwr.methods import get_spec
from dance_flwr.methods.server_side import for_client
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape

START = {"w": torch.ones(2, 3), "b": torch.full((2,), -1.0), "batches": torch.tensor(3)}
OWN = {"w": torch.full((2, 3), 0.5).double(), "b": torch.tensor([0.25, -1.0]).double()}


def reply(tensors, scales=None, **records):
    question = Message(RecordDict({}), dst_node_id=1, message_type=keys.TRAIN)
    answer = messages.train_reply(question, tensors, 7, Report(**records))
    return answer if scales is None else messages.with_scales(answer, scales)


def side(run_config, method="fedavg-full", **options):
    config = run_config(method=method, **options)
    return get_spec(method).server_type()(config, ModelShape(6, 4, 3))


@pytest.mark.parametrize("precision", [FLOAT16, INT8])
def test_an_honest_update_is_added_to_the_model(run_config, precision):
    sent = quantise(OWN, precision)
    answer = reply(sent.tensors | {"batches": torch.tensor(4)}, sent.scales)
    upload, fault = read_upload(answer, 0, side(run_config, upload_precision=precision), START)
    assert fault == "" and upload.weight == 7
    expected = {name: START[name] + OWN[name].float() for name in OWN}
    for name, tensor in expected.items():
        torch.testing.assert_close(upload.state[name], tensor, atol=1 / 254, rtol=0)
        assert upload.state[name].dtype == torch.float32
    assert int(upload.state["batches"]) == 4


def test_a_personal_update_is_added_to_the_model_that_the_client_has(run_config):
    server = side(run_config, "local-only", upload_precision=INT8)
    start = for_client(START, 0) | for_client({n: 10 * t for n, t in START.items()}, 1)
    sent = quantise(OWN, INT8)
    answer = reply(sent.tensors | {"batches": torch.tensor(4)}, sent.scales)
    upload, fault = read_upload(answer, 1, server, start)
    assert fault == "" and float(upload.state["w"][0, 0]) == pytest.approx(10.5)


def lies():
    """(what is wrong, precision, tensors, scales, words of the fault)."""
    sent, half = quantise(OWN, INT8), quantise(OWN, FLOAT16)
    batches = {"batches": torch.tensor(4)}
    good, scales = sent.tensors | batches, sent.scales
    halves = half.tensors | batches
    nan, huge = torch.tensor([math.nan, 1.0]), torch.tensor([3e38, 1.0])
    return [
        ("whole model", INT8, START, None, "expected w of type torch.int8"),
        ("steps for a whole model", FLOAT32, good, None, "type torch.float32, found torch.int8"),
        ("wide scales", INT8, good, scales.double(), "expected scales of torch.float32"),
        ("wrong type", INT8, good | {"w": good["w"].int()}, scales, "found torch.int32"),
        ("float16 for int8", INT8, halves, scales, "found torch.float16"),
        ("int8 for float16", FLOAT16, good, None, "expected w of type torch.float16"),
        ("wrong shape", INT8, good | {"w": good["w"].T}, scales, "of shape (2, 3), found (3, 2)"),
        ("missing tensor", INT8, {"w": good["w"]}, scales, "tensors of the global model"),
        ("more tensors", INT8, good | {"x": good["w"]}, scales, "tensors of the global model"),
        ("no scales", INT8, good, None, "scales of torch.float32 and shape (2,)"),
        ("one scale too many", INT8, good, torch.ones(3), "shape (2,), found torch.float32"),
        ("NaN scale", INT8, good, nan, "expected finite scales"),
        ("infinite scale", INT8, good, nan.nan_to_num(math.inf), "expected finite scales"),
        ("negative scale", INT8, good, -scales, "expected finite scales"),
        ("huge scale", INT8, good, huge, "expected finite numbers, found NaN or infinity in w"),
        (
            "step of -128",
            INT8,
            good | {"b": torch.tensor([-128, 1]).to(torch.int8)},
            scales,
            "-128",
        ),
        ("NaN", FLOAT16, halves | {"b": halves["b"] * math.nan}, None, "expected finite numbers"),
        ("infinity", FLOAT16, halves | {"b": halves["b"] * math.inf}, None, "NaN or infinity in b"),
        ("scales of halves", FLOAT16, halves, torch.ones(2), "shape (0,), found torch.float32"),
    ]


@pytest.mark.parametrize("lie", lies(), ids=lambda lie: lie[0])
def test_a_lie_is_named(run_config, lie):
    _, precision, tensors, scales, words = lie
    answer = reply(tensors, scales)
    _, fault = read_upload(answer, 0, side(run_config, upload_precision=precision), START)
    assert words in fault
