"""Opening a finished run for its evidence: what is refused, in one line each."""

import json
from dataclasses import asdict

import pytest

from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.evidence import FinishedRun, show_evidence


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


FORMER = {**flatten(RunConfig()), "dance.miks": 0.1}
WITH_OTHERS = {**flatten(RunConfig()), "condense.outer": 1}  # which releases stored for every run


@pytest.mark.parametrize(
    ("entries", "client", "words"),
    [
        ({"method": "fedavg-full"}, 0, "expected a run of method 'dance', found 'fedavg-full'"),
        ({"config": FORMER}, 0, "'dance.miks': did you mean 'dance.mix'"),
        ({"config": WITH_OTHERS}, 0, "expected --client-folder, found none"),
        ({}, 0, "expected --client-folder, found none"),  # a run of clients on other machines
        ({"partition_dir": "here"}, 9, "--client: expected a number from 0 to 4, found 9"),
        ({"partition_dir": "here"}, -1, "--client: expected a number from 0 to 4, found -1"),
    ],
)
def test_a_run_without_this_evidence_is_refused(finished, entries, client, words):
    with pytest.raises(UserError) as error:
        show_evidence(finished(**entries), client, None, None)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_clients_are_those_of_the_run_or_the_one_named(finished, tmp_path):
    with pytest.raises(UserError, match=str(tmp_path)):
        FinishedRun.open(tmp_path)
    assert FinishedRun.open(finished()).clients == list(range(RunConfig.clients))
    assert FinishedRun.open(finished(), tmp_path).clients == [None]
