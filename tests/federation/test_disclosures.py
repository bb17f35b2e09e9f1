"""The meaning of every key of a message."""

import pytest

from dance_flwr.errors import UserError
from dance_flwr.federation.disclosures import TENSORS, disclosure, disclosures
from dance_flwr.federation.flower import SecAggKey
from dance_flwr.federation.wire import keys


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("extras", "texts"),
        (keys.METRICS, "seconds-of-something"),
        (keys.METRICS, "loss-per-node"),
        (keys.CONFIG, "run-of-somebody"),
    ],
)
def test_a_key_without_a_meaning_is_refused(record, key):
    with pytest.raises(UserError, match=f"{key!r} of {record!r}"):
        disclosure(record, key)


def test_every_key_of_flowers_protocol_that_travels_has_a_meaning():
    named = {value for name, value in vars(SecAggKey).items() if name.isupper()}
    described = {key for _, key in disclosures()}
    assert named - described == {SecAggKey.PARAMETERS}  # of legacy messages; no app of ours has it


def test_tensors_are_described_by_record():
    assert disclosure(keys.ARRAYS, "any.weight") is TENSORS[keys.ARRAYS]
    assert set(TENSORS) == {
        *(keys.ARRAYS, keys.STATISTICS, keys.SCALES),
        *(keys.SERVER_PAYLOAD, keys.EXCHANGED),
    }
