"""The digest of what a sum asks for: the same at server and clients, and of everything."""

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from dance_flwr.config.tree import parse
from dance_flwr.federation.flower import SECAGG_CONFIGS, TaskIdentity
from dance_flwr.federation.secagg_request import request_digest
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.serialization import pack, unpack
from dance_flwr.federation.wire.tensors import arrays_of

RUN = {"clients": 5, "privacy.secure-aggregation": True}
MODEL = {"b": torch.ones(2, 3), "a": torch.tensor(3), "c": torch.zeros(0)}


def request(model=MODEL, **config):
    TaskIdentity.run_id = TaskIdentity.task_id = 1
    TaskIdentity.node_id = 0
    records = {
        keys.ARRAYS: arrays_of(model),
        keys.CONFIG: ConfigRecord({keys.ROUND: 1, keys.CLIPPING_NORM: 1.5} | config),
        keys.SECURE_SUM: ConfigRecord({keys.TASK: keys.TRAIN, keys.TOTAL_WEIGHT: 7}),
    }
    return Message(RecordDict(records), 1, keys.TRAIN)


def test_it_is_the_same_on_both_sides_of_a_wire():
    """The server makes the masks of clients that dropped out from its own."""
    sent = request()
    (packed,) = pack([sent])
    received = unpack(packed)
    received.content[SECAGG_CONFIGS] = ConfigRecord({"of": "one client"})
    received.content[keys.SIGNED] = ConfigRecord({"of": "others"})
    here, there = parse(RUN | {"out": "a"}), parse(RUN | {"out": "b", "node-timeout": 9.0})
    assert request_digest(sent.content, here) == request_digest(received.content, there)


@pytest.mark.parametrize(
    ("other", "run"),
    [
        ({"model": MODEL | {"b": torch.ones(3, 2)}}, RUN),
        ({"model": MODEL | {"b": torch.ones(2, 3) + 1e-6}}, RUN),
        ({keys.ROUND: 2}, RUN),
        ({keys.CLIPPING_NORM: 1.0}, RUN),
        ({"more": 1}, RUN),
        ({}, RUN | {"privacy.threshold": 0.8}),
        ({}, RUN | {"validation-nodes": 1}),
    ],
    ids=["shape", "values", "round", "norm", "one more", "threshold", "validation nodes"],
)
def test_another_request_has_another_one(other, run):
    own = request_digest(request().content, parse(RUN))
    assert request_digest(request(**other).content, parse(run)) != own
