"""Rounds whose clients have no weight: by labels, which only client 0 has."""

import json
import logging

import numpy as np
import pytest
import torch
from support.edge_cases import Draft
from support.killing import Killed, asks, same
from support.models import equal

import client_app
from dance_flwr.data.graphs.graph import TEST, TRAIN
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey, SecAggStage
from dance_flwr.federation.wire.messages import config_of, model_of
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.result import load_model, read_history
from dance_flwr.runs.run import read_status

CLIENTS, ROUNDS = 4, 6
KEYS = {
    **{"partition": "random", "clients": CLIENTS, "rounds": ROUNDS, "method": "fedavg-full"},
    **{"aggregate_weight": "labelled", "client_fraction": 0.5},
}
NOISE = {"privacy_dp": "distributed", "privacy_epsilon": 900.0}
WHY = "no client of the round has a labelled training node"


@pytest.fixture
def data(crafted):
    """Four clients of nine nodes, of which only client 0 has training labels."""
    draft = Draft(CLIENTS)
    for client in range(1, CLIENTS):
        draft.replace(TRAIN, TEST, client)
    return crafted("part", *draft.parts())


def drawn(finished):
    """Round -> the clients that were drawn: they alone sent a model."""
    return {
        row["round"]: {int(client) for client, size in row["bytes_up"].items() if size}
        for row in finished.result["history"]
    }


@pytest.mark.parametrize("keys", [{}, {"strategy": "fedadam"}, {"strategy": "fedmedian"}])
def test_a_round_without_weights_is_skipped_and_the_run_goes_on(run, data, caplog, cli, keys):
    with caplog.at_level(logging.WARNING, "flwr"):
        finished = run(data=data, **KEYS | keys)
    rows = read_history(finished.folder)
    assert [row.round for row in rows] == list(range(1, ROUNDS + 1))
    skipped = [row.round for row in rows if row.skipped]
    assert 0 < len(skipped) < ROUNDS
    assert read_status(finished.folder).skipped == skipped
    said = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert said == [f"round {t} is skipped: {WHY}; the model stays as it is" for t in skipped]
    for row in rows:
        assert (row.skipped == WHY) == (row.round in skipped)
        if row.skipped:
            assert row.loss is None
            before = [r.val_accuracy for r in rows if r.round == row.round - 1]
            assert not before or row.val_accuracy in (None, *before)
    assert skipped == [t for t, clients in drawn(finished).items() if 0 not in clients]
    sent = {
        config_of(message)["server-round"]: model_of(message)
        for message in finished.messages
        if message.metadata.message_type == "train" and not message.metadata.src_node_id
    }
    assert all(equal(sent[t], sent[t + 1]) for t in {*skipped} - {ROUNDS})
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())
    shown = cli("status", finished.folder).out
    assert (
        "skipped, as no client that took part had a weight: "
        f"{', '.join(map(str, skipped))}" in shown
    )
    assert json.loads(cli("status", finished.folder, "--json").out)["skipped"] == skipped


@pytest.mark.parametrize(
    ("method", "weight", "privacy"),
    [
        ("fedavg-full", "labelled", {}),
        ("dance", "nodes", NOISE),
    ],
)
def test_clients_without_a_label_take_part_under_masks(run, data, weight, method, privacy):
    """A mean of losses over no node is none: it is nothing to divide by."""
    masked = {"privacy_secure_aggregation": True, "client_fraction": 1.0, "rounds": 2}
    keys = KEYS | masked | privacy | {"aggregate_weight": weight, "method": method}
    finished = run(data=data, **keys)
    for row in finished.result["history"]:
        assert not row["absent"] and not row["skipped"]
        assert row["loss"] is None if privacy else np.isfinite(row["loss"])


class WithoutClient0:
    """The ClientApp, in which client 0 is gone in one of the masked sums."""

    def __init__(self, sum_):
        self.sum, self.sums = sum_, 0

    def __call__(self, message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS, {}).get(SecAggKey.STAGE)
        if stage == SecAggStage.SETUP and context.node_config["partition-id"] == 0:
            self.sums += 1
            if self.sums == self.sum:
                raise ConnectionError("gone")
        return client_app.app(message, context)


def test_a_masked_sum_of_clients_without_weight_is_skipped(run, data):
    """The sums of a run: weights, then the training of each round."""
    masked = {"privacy_secure_aggregation": True, "client_fraction": 1.0, "rounds": 3}
    masked |= {"strategy": "fedadam"}
    finished = run(data=data, app=WithoutClient0(3), **KEYS | masked)
    rows = finished.result["history"]
    assert [row["skipped"] for row in rows] == ["", WHY, ""] and rows[1]["absent"]
    # The same sum hides the validation of round 1, whose model round 2 leaves as it is.
    assert rows[0]["val_accuracy"] is None and rows[1]["loss"] is None
    assert np.isfinite([rows[0]["loss"], rows[2]["loss"]]).all()
    # Only client 0 has a weight: rounds 1 and 3 are those of a run in which it is never gone.
    fewer = run(data=data, **KEYS | masked)
    assert all(row["skipped"] == "" for row in fewer.result["history"])
    first = fewer.result["history"][0]
    assert first["loss"] == rows[0]["loss"]
    assert first["val_accuracy"] == rows[1]["val_accuracy"]


def test_a_run_with_skipped_rounds_resumes(run, data, tmp_path):
    whole = run(data=data, **KEYS)
    (first, *_) = [row["round"] for row in whole.result["history"] if row["skipped"]]
    with pytest.raises(Killed):
        run(data=data, folder=tmp_path / "run", on_message=asks("train", first + 1), **KEYS)
    assert Checkpoint.load(tmp_path / "run").round == first
    same(run(data=data, folder=tmp_path / "run", resume=True, **KEYS), whole)
