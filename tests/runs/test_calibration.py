"""One probability for a node: fitted in the federation, and the same wherever it is shown."""

import json

import numpy as np
import pyarrow.csv as pa_csv
import pytest
import torch

from dance_flwr.api import explain
from dance_flwr.api.bundle import export
from dance_flwr.api.prediction_table import predict, verify
from dance_flwr.client_data.validated import labelled_nodes
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.evidence.pack import Packs
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.own_models import deployed_own
from dance_flwr.federation.wire import keys
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn import calibration
from dance_flwr.nn.calibration import TEMPERATURES, Calibration
from dance_flwr.pages.audit import open_run
from dance_flwr.runs.evidence import FinishedRun, show_evidence, verify_evidence


def quiet(line):
    pass


@pytest.fixture(scope="module")
def fitted(run):
    """A run of personal models whose few validation nodes may fit a temperature."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "MIN_NODES", 1)
        patch.setattr(calibration, "_LEAST_GAIN", 0)
        finished = run(method="dance", personal="mix", seed=2)
    assert finished.result["calibration"]["temperature"] != 1
    return finished


def deployed(finished, split):
    """Probabilities and labels of a split's nodes over all clients, as they are deployed."""
    read, parts = FinishedRun.open(finished.folder), []
    for number in range(finished.config.clients):
        client = Client(read.data(number), read.config)
        client.load(read.weights)
        client.own = deployed_own(client.data.folder, finished.result["run"], read.config)
        nodes = labelled_nodes(client.data, split)
        info = RoundInfo("x", 3, "", final=True)
        with torch.no_grad():
            probs = client.predict(info, nodes)["deployed"].double()
        parts.append((probs, client.data.labels[nodes]))
    return (torch.cat(column) for column in zip(*parts, strict=True))


def test_the_temperature_is_the_best_of_all_clients_validation_nodes(fitted):
    probs, labels = deployed(fitted, VAL)
    losses = [
        -torch.softmax(probs.log() / t, 1)[range(len(labels)), labels].log().clamp(max=13.816).sum()
        for t in TEMPERATURES
    ]
    recorded = fitted.result["calibration"]
    assert recorded["nodes"] == len(labels) == fitted.result["val_nodes"]
    assert recorded["temperature"] == TEMPERATURES[int(np.argmin(losses))]


def test_the_error_is_that_of_the_test_nodes(fitted):
    probs, labels = deployed(fitted, TEST)
    recorded = Calibration(**fitted.result["calibration"])
    for rows, error in (
        (probs, recorded.error_before),
        (recorded.apply(probs), recorded.error_after),
    ):
        bins = np.zeros(15)
        for row, label in zip(rows.numpy(), labels.tolist(), strict=True):
            bins[min(int(row.max() * 15), 14)] += (row.argmax() == label) - row.max()
        assert error == pytest.approx(np.abs(bins).sum() / len(labels), abs=2e-3)


def test_page_table_evidence_and_python_show_one_probability(fitted, tmp_path):
    folder = fitted.partition / "client-1"
    bundle = export(fitted.folder, tmp_path / "bundle", folder)
    assert vars(bundle.calibration) == fitted.result["calibration"]
    predict(bundle, str(folder), tmp_path / "p.csv", tmp_path / "e.jsonl", quiet)
    verify(bundle, str(folder), tmp_path / "e.jsonl", quiet)
    table = pa_csv.read_csv(tmp_path / "p.csv").to_pydict()
    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    last = [max(list(line["views"].values())[-1].values()) for line in lines]
    np.testing.assert_allclose(last, table["probability"], atol=1e-5)
    with open_run(fitted.folder, 1, None, quiet) as subject:
        page = subject.views["deployed"]
        np.testing.assert_allclose(page.max(axis=1), table["probability"], atol=1e-5)
    evidence = explain(str(tmp_path / "bundle"), str(folder), [0, 3])
    for row, node in zip((0, 3), evidence, strict=True):
        assert node.probability == pytest.approx(table["probability"][row], abs=1e-5)
        shown = show_evidence(fitted.folder, 1, node.id, None)
        assert f"({table['probability'][row]:.3f})" in shown.partition("answer ")[2][:80]


def test_what_a_run_seals_stays_as_the_model_gave_it(fitted):
    packs = Packs.load(fitted.store(1).final_path)
    recorded = Calibration(**fitted.result["calibration"])
    assert not np.allclose(packs.confidence, packs.calibrated(recorded).confidence)
    np.testing.assert_array_equal(packs.predicted, packs.calibrated(recorded).predicted)
    verify_evidence(fitted.folder, None, quiet)


def test_the_global_bundle_of_personal_models_is_not_calibrated(fitted, tmp_path):
    assert export(fitted.folder, tmp_path / "bundle").calibration == Calibration()


def sums(finished):
    """The names of the metrics of the final evaluation."""
    return {
        name
        for reply in finished.replies(keys.EVALUATE)
        for name in reply.content.metric_records[keys.METRICS]
    }


def test_masks_change_nothing(run, fitted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "MIN_NODES", 1)
        patch.setattr(calibration, "_LEAST_GAIN", 0)
        masked = run(method="dance", personal="mix", seed=2, privacy_secure_aggregation=True)
    assert masked.result["calibration"] == fitted.result["calibration"]
    assert masked.replies(keys.EVALUATE) == []


@pytest.mark.parametrize("seeded", [False, True])
def test_under_differential_privacy_nobody_sends_and_probabilities_stay(run, seeded):
    private = {"privacy_dp": "central", "privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
    finished = run(method="fedavg-full", privacy_seeded=seeded, **private)
    assert finished.result["calibration"] == vars(Calibration())
    assert not {keys.calibration_of(split) for split in ("val", "test")} & sums(finished)


def test_every_run_without_privacy_measures_its_error(reference):
    finished = reference(method="fedavg-full")
    assert finished.result["calibration"]["temperature"] == 1
    assert finished.result["calibration"]["error_after"] > 0
    assert {keys.calibration_of(split) for split in ("val", "test")} <= sums(finished)
