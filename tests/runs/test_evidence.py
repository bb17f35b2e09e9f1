"""Opening a finished run for its evidence: what is refused, in one line each."""

import json
from dataclasses import asdict

import pytest

from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.evidence import FinishedRun, show_evidence, verify_evidence


@pytest.fixture
def finished(tmp_path):
    """A function that writes the result of a run and returns the run's folder."""

    def write(**entries):
        content = {"method": "dance", "model_fingerprint": "0" * 16, "partition_dir": None}
        content["calibration"] = asdict(Calibration())
        content["config"] = flatten(RunConfig())
        (tmp_path / RESULT).write_text(json.dumps(content | entries))
        return tmp_path

    return write


def refused(action, *arguments):
    with pytest.raises(UserError) as error:
        action(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_without_a_result_is_refused(tmp_path):
    assert str(tmp_path) in refused(FinishedRun.open, tmp_path)


def test_a_method_without_evidence_is_refused(finished):
    message = refused(FinishedRun.open, finished(method="fedavg-full"))
    assert "expected a run of method 'dance', found 'fedavg-full'" in message


def test_the_configuration_of_another_version_is_refused(finished):
    former = {**flatten(RunConfig()), "dance.miks": 0.1}
    message = refused(verify_evidence, finished(config=former), None, print)
    assert "expected the configuration of a run of this version" in message
    assert "'dance.miks': did you mean 'dance.mix'" in message


def test_clients_on_other_machines_are_named(finished):
    message = refused(show_evidence, finished(), 0, None, None)
    assert message.startswith("expected --client-folder, found none")


def test_clients_are_those_of_the_run_or_the_one_named(finished, tmp_path):
    assert FinishedRun.open(finished()).clients == list(range(RunConfig.clients))
    assert FinishedRun.open(finished(), tmp_path).clients == [None]


@pytest.mark.parametrize("client", [9, -1])
def test_a_client_that_there_is_not_is_answered_with_those_there_are(finished, tmp_path, client):
    message = refused(show_evidence, finished(partition_dir=str(tmp_path)), client, None, None)
    assert message == f"--client: expected a number from 0 to 4, found {client}"
