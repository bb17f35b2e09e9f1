"""Trackers: the numbers of the history, read back by each tracker's own library."""

import re
import shutil
import socket
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.killing import Killed

from dance_flwr.config.plugins import TRACKERS
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.errors import UserError
from dance_flwr.runs import tracking
from dance_flwr.runs.locks import SERVER, exclusive
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import read_run
from dance_flwr.runs.simulation.in_process import run_in_process
from dance_flwr.runs.tracking import final_numbers, round_numbers, track_run, tracked

PACKAGES = ("mlflow", "tensorboard")


def read_mlflow(facts):
    """Return round -> numbers, the final numbers, and every text that is stored."""
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("dance-flwr").experiment_id
    (found,) = client.search_runs([experiment])
    rounds, final = {}, {}
    for name in found.data.metrics:
        for metric in client.get_metric_history(found.info.run_id, name):
            place = final if name.startswith("final/") else rounds.setdefault(metric.step, {})
            assert name not in place, "stored twice"
            place[name] = metric.value
    texts = [*found.data.params.items(), *found.data.tags.items()]
    assert found.info.status == {"finished": "FINISHED"}.get(facts.status.state, "KILLED")
    return rounds, final, texts


def read_tensorboard(facts):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    store = EventAccumulator(str(Path(facts.status.folder) / "tensorboard"), {"tensors": 0})
    store.Reload()
    rounds, final = {}, {}
    for name in store.Tags()["scalars"]:
        for event in store.Scalars(name):
            place = final if name.startswith("final/") else rounds.setdefault(event.step, {})
            assert name not in place, "stored twice"
            place[name] = event.value
    texts = [
        (name, value.tensor_proto.string_val[0].decode())
        for name in store.Tags()["tensors"]
        for value in store.Tensors(name)
        if value.tensor_proto.string_val
    ]
    plugin = store.PluginTagToContent("hparams") if final else {}
    return rounds, final, [*texts, *((name, str(content)) for name, content in plugin.items())]


READERS = {name: globals()[f"read_{name}"] for name in PACKAGES}


@pytest.fixture(params=PACKAGES)
def tracker(request, tmp_path, monkeypatch):
    """The name of a tracker whose package is here, with its store in an empty folder."""
    if find_spec(request.param) is None:
        pytest.skip(f"no {request.param} here: pip install 'dance-flwr[track]'")
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path / "store")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield request.param


@pytest.fixture
def copied(dance, tmp_path):
    """A copy of a finished run, and of the same run killed after its second round."""
    folder = tmp_path / "run"
    shutil.copytree(dance.folder, folder)
    return folder


def expected(facts):
    return {row.round: round_numbers(row) for row in facts.rows}


def check(name, facts):
    rounds, final, texts = READERS[name](facts)
    close = {"rel": 1e-6} if name == "tensorboard" else {"rel": 1e-12}  # float32 there
    assert rounds.keys() == expected(facts).keys()
    for round_, numbers in expected(facts).items():
        assert rounds[round_] == pytest.approx(numbers, **close)
    assert final == pytest.approx(final_numbers(facts.result), **close)
    return texts


def test_numbers_of_a_round_are_those_of_its_history(dance):
    row = dance.result["history"][0]
    found = round_numbers(Round.of(row))
    assert found["loss"] == row["loss"] and found["val_accuracy"] == row["val_accuracy"]
    assert found["bytes_up"] == sum(row["bytes_up"].values())
    assert found["bytes_up/client-1"] == row["bytes_up"]["1"]
    assert found["seconds/train"] == row["seconds"]["train"]
    assert "epsilon" not in found and all(type(value) is float for value in found.values())
    final = final_numbers(dance.result)
    assert final["final/test_accuracy"] == dance.result["test_accuracy"]
    assert final["final/test_accuracy/client-2"] == dance.result["clients"][2]["test_accuracy"]


@pytest.fixture
def no_network(monkeypatch):
    """Whoever connects to another machine fails."""
    connect = socket.socket.connect

    def refuse(own, *address, **_):
        if getattr(own, "family", None) == socket.AF_UNIX:  # a process on this machine
            return connect(own, *address)
        raise AssertionError(f"a connection to {address}")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_run_is_read_back_by_the_trackers_own_library(tracker, copied, dance):
    """After the fact, twice: nothing is stored twice, and no text of a client is stored."""
    for _ in range(2):
        track_run([tracker], copied)
    facts = read_run(copied)
    texts = check(tracker, facts)
    stored = "\n".join(f"{name} {value}" for name, value in texts)
    for fact in ("model_fingerprint", "provenance"):
        assert dance.result[fact] in stored
    assert str(copied) in stored and "condensation-ratio" in stored
    keys = " ".join(dance.result["config"])
    words = {
        word
        for k in range(3)
        for text in read_folder(dance.partition / f"client-{k}").texts
        for word in text.split()
        if len(word) > 5 and word.lower() not in keys
    }
    assert len(words) > 20 and not any(word in stored for word in words)
    assert not any(name in stored for name in dance.result["class_names"])


def test_a_stopped_run_is_stored_and_its_rest_when_it_is_resumed(
    tracker, run_config, tmp_path, cli
):
    folder, held = tmp_path / "run", []
    config = run_config(out=str(folder), method="fedavg-full", local_epochs=1)

    def die(row):
        if row["round"] == 2:
            raise Killed

    with pytest.raises(Killed), tracked([tracker], folder, held.append), exclusive(folder, SERVER):
        run_in_process(config, folder, die)
    assert len(held) == 1 and held[0].startswith("tracked     ")
    facts = read_run(folder)
    assert len(facts.rows) == 2
    check(tracker, facts)
    done = cli("run", "--resume", folder, "--track", tracker)
    assert done.code == 0 and "tracked     " in done.out
    facts = read_run(folder)
    assert len(facts.rows) == 3
    check(tracker, facts)


def test_a_tracker_that_fails_costs_no_run(monkeypatch, dance):
    def broken(run):
        raise OSError("the disk is\nfull")

    monkeypatch.setitem(TRACKERS.builtin, "json", broken)
    again = f"found OSError: the disk is full; `dance-flwr report {dance.folder} --track json`"
    with pytest.warns(UserWarning, match=re.escape(again)), tracked(["json"], dance.folder, print):
        pass
    with pytest.raises(UserError, match="--track json: expected a store that can be written"):
        track_run(["json"], dance.folder)


def test_what_is_missing_is_one_line_before_anything_runs(monkeypatch, cli, tmp_path, dance):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    for command in (
        ("run", "--out", tmp_path / "run", "--track", "mlflow"),
        ("report", dance.folder, "--track", "tensorboard"),
    ):
        done = cli(*command)
        assert done.code == 2 and len(done.err) == 1, done.err
        assert "found none; pip install 'dance-flwr[track]'" in done.err[0]
    assert not (tmp_path / "run").exists()
