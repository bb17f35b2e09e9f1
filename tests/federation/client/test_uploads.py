"""Whole runs in which updates travel in fewer bits."""

import itertools

import pytest
import torch
from support.graphs import TEXT_DIM
from support.killing import Killed, asks, same

from dance_flwr.config.sections import FLOAT16, INT8
from dance_flwr.errors import QuorumError
from dance_flwr.federation.flower import SecAggKey
from dance_flwr.federation.privacy.quantiser import Quantised, dequantise
from dance_flwr.federation.server.replies import scales_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.serialization import bytes_of
from dance_flwr.runs.result import load_model

ROUNDS = 6
PLAIN = {"method": "fedavg-full"}
SECURE = {"privacy_secure_aggregation": True, "clients": 5}
INT8_RUN = PLAIN | {"upload_precision": INT8}


def trainings(finished):
    """(round, client's node, reply) of every training, in order."""
    pairs = itertools.pairwise(finished.messages)
    return [
        (request.content["config"]["server-round"], reply.metadata.src_node_id, reply)
        for request, reply in pairs
        if not request.metadata.src_node_id
        and request.metadata.message_type == keys.TRAIN
        and keys.ARRAYS in request.content
    ]


def bytes_up(finished):
    return [sum(row["bytes_up"].values()) for row in finished.result["history"]]


@pytest.fixture(scope="module")
def whole(run):
    return run(rounds=ROUNDS, **PLAIN)


@pytest.fixture(scope="module")
def eight(run):
    return run(rounds=ROUNDS, **INT8_RUN)


@pytest.fixture(scope="module")
def half(run):
    return run(rounds=ROUNDS, upload_precision=FLOAT16, **PLAIN)


def test_the_model_ends_near_that_of_whole_uploads(whole, half, eight):
    for finished, tolerance in ((half, 0.03), (eight, 0.09)):
        for name in ("test_accuracy", "val_accuracy"):
            assert finished.result[name] == pytest.approx(whole.result[name], abs=tolerance)


def test_what_travels_is_counted(whole, half, eight):
    """Each tensor has a header of 128 bytes, as many as 32 weights; a tiny model shows it."""
    for finished, width in ((whole, 4), (half, 2), (eight, 1)):
        _, _, reply = trainings(finished)[0]
        arrays = messages.arrays_in(reply)
        weights = sum(array.numpy().size for array in arrays.values())
        scales = (128 + 4 * len(arrays)) if width == 1 else 0
        expected = width * weights + 128 * len(arrays) + scales
        assert bytes_of(reply) == expected
        assert bytes_up(finished) == [3 * expected] * ROUNDS
        ledger = [row for row in finished.result["messages"] if row["way"] == "to the server"]
        (trained,) = [row for row in ledger if row["type"] == "train"]
        assert trained["bytes"] == ROUNDS * 3 * expected
    assert bytes_up(eight)[0] < 0.5 * bytes_up(whole)[0]


@pytest.mark.parametrize("precision", [FLOAT16, INT8])
def test_every_upload_is_what_its_client_learned_but_for_the_rounding(precision, monkeypatch, run):
    """With the clients' true updates on the side."""
    from dance_flwr.federation.client.client import Client

    true, honest = {}, Client.train

    def watched(self, state, info, **options):
        trained, report = honest(self, state, info, **options)
        learned = {name: t.double() - state[name].double() for name, t in trained.items()}
        true[info.round, self.data.card.client] = learned
        return trained, report

    monkeypatch.setattr(Client, "train", watched)
    replies = trainings(run(rounds=3, upload_precision=precision, **PLAIN))
    assert len(replies) == len(true) == 9
    for round_, node, reply in replies:
        sent = dequantise(Quantised(messages.model_of(reply), scales := scales_of(reply)))
        steps = scales.tolist() or [2**-10] * len(sent)
        for (name, own), step in zip(sent.items(), steps, strict=True):
            error = (own - true[round_, node - 1][name]).abs()
            assert float(error.max()) <= step / 2 * 1.001


@pytest.mark.parametrize("extra", [PLAIN, PLAIN | SECURE | {"clients": 3}], ids=["open", "masked"])
def test_a_resumed_run_repeats_its_round_and_ends_the_same(run, tmp_path, extra):
    """Killed after the clients of round 3 have answered."""
    options = extra | {"rounds": 3, "upload_precision": INT8}
    expected, folder = run(**options), tmp_path / "run"
    with pytest.raises(Killed):
        run(folder=folder, on_message=asks("evaluate", 3), **options)
    same(run(folder=folder, resume=True, **options), expected)


# Under masks


@pytest.fixture(scope="module")
def masked(run):
    return run(rounds=4, **PLAIN, **SECURE)


@pytest.mark.parametrize(("precision", "bits", "near"), [(FLOAT16, 19, 0.03), (INT8, 11, 0.09)])
def test_masked_vectors_are_smaller_on_the_wire(run, masked, precision, bits, near):
    finished = run(rounds=4, upload_precision=precision, **PLAIN, **SECURE)
    small, large = (
        sum(row["bytes"] for row in r.result["messages"] if "masked" in row["stage"])
        for r in (finished, masked)
    )
    assert small < large
    sizes = [
        max(len(part) for part in record[SecAggKey.MASKED_PARAMETERS])
        for reply in finished.replies("train")
        for record in reply.content.config_records.values()
        if SecAggKey.MASKED_PARAMETERS in record
    ]
    weights = sum(t.numel() for t in load_model(finished.folder).values())
    # Those of a training; the counts of the final model are more numbers than this small model has.
    trained = [size for size in sizes if 0 <= size - weights * bits / 8 <= 1000]
    assert len(trained) >= 3 * 4
    assert finished.result["test_accuracy"] == pytest.approx(
        masked.result["test_accuracy"], abs=near
    )


def test_the_masked_mean_is_that_of_the_rounded_updates(run, monkeypatch):
    """Every client moves every weight by the bound: the mean is exactly the bound."""
    from dance_flwr.federation.client.client import Client, initial_model, shape_of

    honest = Client.train

    def pushed(self, state, info, **options):
        _, report = honest(self, state, info, **options)
        return {name: value + 0.5 for name, value in state.items()}, report

    monkeypatch.setattr(Client, "train", pushed)
    for precision in (FLOAT16, INT8):
        finished = run(
            rounds=1, upload_precision=precision, privacy_update_range=0.51, **PLAIN, **SECURE
        )
        start = initial_model(shape_of(TEXT_DIM, 3, finished.config), finished.config).state_dict()
        for name, tensor in load_model(finished.folder).items():
            step = 0.51 / (127 if precision == INT8 else 32767)
            torch.testing.assert_close(tensor, start[name] + 0.5, atol=step / 2 + 1e-6, rtol=0)


def test_an_update_beyond_the_range_is_refused(run, caplog):
    with pytest.raises(QuorumError, match="the reason is in its own log"):
        run(rounds=2, upload_precision=INT8, privacy_update_range=1e-6, **PLAIN, **SECURE)
    assert "raise privacy.update-range" in caplog.text
