"""A run under differential privacy says whether it works, where that may be known."""

import shutil

import pytest
import torch

from dance_flwr.cli.report import summary
from dance_flwr.client_data.validated import labelled_nodes
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.errors import UserError
from dance_flwr.federation.client.measured import MEASURED, Measured, read_measured
from dance_flwr.runs.result import read_result, write_result
from dance_flwr.runs.run import read_status

NOISE = {"privacy_noise_multiplier": 1.0, "privacy_epsilon": 50.0, "rounds": 2}
MODES = {
    "local": {"privacy_dp": "local"},
    "central": {"privacy_dp": "central"},
    "distributed": {
        "privacy_dp": "distributed",
        "privacy_secure_aggregation": True,
        "clients": 5,
    },
}


@pytest.fixture(scope="module", params=MODES)
def noisy(request, run):
    return run(**NOISE, **MODES[request.param])


def measured(finished):
    folders = [finished.partition / f"client-{k}" for k in range(finished.config.clients)]
    return [read_measured(folder, finished.result["run"]) for folder in folders]


def closing(finished):
    return "\n".join(summary(finished.folder, finished.result, []))


def test_each_client_keeps_its_own_numbers_and_sends_none(noisy):
    for client, found in enumerate(measured(noisy)):
        data = noisy.data(client)
        labels = data.labels[labelled_nodes(data, TEST)]
        names, counts = data.card.class_names, torch.bincount(labels, minlength=3).tolist()
        assert (found.client, found.nodes) == (client, len(labels))
        assert found.largest_nodes == max(counts)
        assert counts[names.index(found.largest)] == max(counts)
        assert 0 <= found.correct <= found.nodes
    assert noisy.result["test_nodes"] == 0 and noisy.result["test_accuracy"] is None


def test_the_reason_is_the_true_one_everywhere(noisy, cli):
    printed = [cli(command, noisy.folder).out for command in ("status", "report")]
    for text in (closing(noisy), *printed):
        assert "clients count no test node under differential privacy" in text
        assert "no client has" not in text


def test_epsilon_and_what_each_site_measured_are_shown_and_no_loss(noisy, cli):
    spent = f"{noisy.result['privacy']['epsilon']:.4g} of 50 spent"
    assert {row["loss"] for row in noisy.result["history"]} == {None}
    for text in (closing(noisy), cli("status", noisy.folder).out):
        assert spent in text
        assert all(str(found) in text for found in measured(noisy))
        files = f"{noisy.partition}/client-*/runs/{noisy.result['run']}/{MEASURED}"
        assert files in text and "client 2" in text


def test_sites_that_are_elsewhere_are_told_where_they_look(noisy, tmp_path):
    folder = shutil.copytree(noisy.folder, tmp_path / "run")
    result = read_result(folder)
    write_result(folder, result | {"partition_dir": None})
    rows = dict(read_status(folder).private.rows())
    assert rows["sites"] == "each sees what it measured with `dance-flwr site results`"
    assert not any(name.startswith("client") for name in rows)


def test_a_running_run_has_spent_epsilon_and_no_site(run_config, tmp_path):
    from dance_flwr.data.prepare import prepare
    from dance_flwr.runs.simulation.in_process import run_in_process

    config, seen = run_config(out=str(tmp_path / "run"), **NOISE, **MODES["local"]), []
    prepare(config)
    run_in_process(config, tmp_path / "run", lambda row: seen.append(read_status(tmp_path / "run")))
    assert [status.private.sites for status in seen] == [[], []]
    assert seen[0].private.epsilon < seen[1].private.epsilon <= 50


def test_without_noise_or_with_that_of_the_seed_accuracy_is_measured(run, reference):
    plain = reference()
    assert read_status(plain.folder).private is None and "epsilon" not in closing(plain)
    found = sum(one.correct for one in measured(plain))
    assert found == round(plain.result["test_accuracy"] * plain.result["test_nodes"])
    seeded = run(**NOISE, **MODES["central"], privacy_seeded=True)
    assert "accuracy    not measured" not in closing(seeded) and "epsilon" in closing(seeded)


def test_a_damaged_file_is_named(tmp_path):
    assert read_measured(tmp_path, "run") is None
    Measured(0, 4, 3, "a", 2).keep(tmp_path, "run")
    assert str(read_measured(tmp_path, "run")).startswith("75.0% of 4 test nodes; 50.0% if all")
    (tmp_path / "runs" / "run" / MEASURED).write_text("[]")
    with pytest.raises(UserError, match="expected what the client measured"):
        read_measured(tmp_path, "run")
