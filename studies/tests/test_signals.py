"""However a study is stopped, nothing that it started goes on."""

import signal

import pytest
from support.graphs import SMALL
from support.stopping import PATIENCE_SECONDS
from support.stopping import begin as begin
from support.stopping import data_root as data_root


@pytest.mark.parametrize("way", ["SIGTERM", "SIGKILL"])
def test_nothing_of_a_study_is_left(begin, tiny, data_root, tmp_path, way):
    settings = SMALL | {"rounds": 5000, "data-root": str(data_root)}
    pairs = [
        word
        for key, value in settings.items()
        for word in ("--set", f"{key}={str(value).lower() if value in (True, False) else value}")
    ]
    command = ["dance-flwr", "experiment", "main-table", "--datasets", tiny, "--seeds", "0"]
    command += ["--methods", "fedavg-full", "--jobs", "1", "--out", tmp_path / "study", *pairs]
    started = begin(command, "study/runs/.*.draft/history.jsonl")
    assert len(started.look()) > 1, "a study has a worker"
    started.process.send_signal(getattr(signal, way))
    assert started.left(PATIENCE_SECONDS) == []
    if way == "SIGTERM":
        assert started.process.wait(PATIENCE_SECONDS) == 130
        assert not list((tmp_path / "study").glob("runs/.*.draft"))
