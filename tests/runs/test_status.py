"""Watching a run: its folder at any time, JSON lines on request."""

import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest
from support.altered import unlike
from support.killing import Killed
from support.project import PROJECT

from dance_flwr import events
from dance_flwr.cli.listing import render
from dance_flwr.config.text import to_toml
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.runs.locks import SERVER, exclusive, is_locked
from dance_flwr.runs.result import read_history, read_result, whole_lines
from dance_flwr.runs.run import read_status
from dance_flwr.runs.simulation.in_process import run_in_process

FAST = {"method": "fedavg-full", "local_epochs": 1}


@pytest.fixture
def seen(tmp_path, run_config):
    """A function that runs as the command line does and collects `status` after every round."""

    def start(on_round=None, **keys):
        config = run_config(out=str(tmp_path / "run"), **FAST, **keys)
        found = []

        def look(row):
            found.append(read_status(tmp_path / "run"))
            if on_round:
                on_round(row)

        with exclusive(tmp_path / "run", SERVER):
            run_in_process(config, tmp_path / "run", look)
        return found

    return start


def stop_after(round_, error):
    def stop(row):
        if row["round"] == round_:
            raise error

    return stop


@pytest.fixture
def lines(monkeypatch):
    """Every event and log line of this process from here on, as `DANCE_FLWR_LOG=json` would write
    them.
    """
    written = []

    class Keep(logging.Handler):
        def emit(self, record):
            written.append(json.loads(events._Format().format(record)))

    handler, logger = Keep(), logging.getLogger("dance_flwr.events")
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()
    logger.addHandler(handler)
    logging.getLogger("flwr").addHandler(handler)
    yield written
    logger.removeHandler(handler)
    logging.getLogger("flwr").removeHandler(handler)
    logger.manager._clear_cache()


def of(lines, event):
    return [line for line in lines if line["event"] == event]


# The state of a run


def test_while_it_runs_and_after_its_end(seen, tmp_path):
    during = seen()
    assert [(status.state, status.round, status.rounds) for status in during] == [
        ("running", k, 3) for k in (1, 2, 3)
    ]
    rows = read_history(tmp_path / "run")
    second = during[1]
    assert second.val_accuracy == rows[1].val_accuracy and second.val_round == 2
    assert second.best_accuracy == max(row.val_accuracy for row in rows[:2])
    assert second.bytes_up == sum(sum(row.bytes_up.values()) for row in rows[:2]) > 0
    assert second.seconds_left == pytest.approx((rows[0].round_seconds + rows[1].round_seconds) / 2)
    assert second.seconds_per_round == pytest.approx(second.seconds_left)
    assert (second.answered, second.absent, second.resume) == ([0, 1, 2], [], "")
    assert during[2].seconds_left == 0
    after = read_status(tmp_path / "run")
    result = read_result(tmp_path / "run")
    assert (after.state, after.round, after.rounds, after.run) == ("finished", 3, 3, second.run)
    for name in ("run", "best_round", "test_accuracy"):
        assert getattr(after, name) == result[name]
    assert after.seconds_left is None and after.updated >= second.updated


def test_a_killed_run_says_how_to_go_on(seen, tmp_path, cli):
    with pytest.raises(Killed):
        seen(stop_after(2, Killed()))
    status = read_status(tmp_path / "run")
    assert (status.state, status.round, status.rounds) == ("interrupted", 2, 3)
    assert f"dance-flwr run --resume {tmp_path / 'run'}" in status.resume
    assert status.seconds_left is None, "nobody knows when it goes on"
    with exclusive(tmp_path / "run", SERVER):
        assert read_status(tmp_path / "run").state == "running"
    done = cli("status", tmp_path / "run")
    assert done.code == 0 and all(
        word in done.out for word in ("interrupted", "--resume", "2 of 3")
    )


def test_a_run_whose_checkpoint_cannot_be_read_says_why_it_cannot_go_on(seen, tmp_path, cli):
    with pytest.raises(Killed):
        seen(stop_after(2, Killed()))
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"of another release")
    out = cli("status", tmp_path / "run").out
    assert "expected a checkpoint of this version" in out and "start it again" in out
    assert "interrupted" in out and "gathers" not in out


def test_only_the_rounds_that_are_kept_count_after_a_kill(seen, tmp_path, monkeypatch):
    from dance_flwr.runs.checkpoint import Checkpoint

    real = Checkpoint.save

    def save(point, folder):
        if point.round == 2:
            raise Killed
        real(point, folder)

    monkeypatch.setattr(Checkpoint, "save", save)
    with pytest.raises(Killed):
        seen(client_fraction=0.9)
    assert len(whole_lines(tmp_path / "run" / "history.jsonl")) == 2
    assert read_status(tmp_path / "run").round == 1


def test_a_failed_run_says_why_and_how_to_go_on(seen, tmp_path, cli):
    with pytest.raises(RuntimeError):
        seen(stop_after(1, RuntimeError("the disk\nis full")))
    status = read_status(tmp_path / "run")
    assert (status.state, status.round) == ("failed", 1)
    assert status.reason.startswith("RuntimeError: the disk is full; 1 of 3 rounds are kept")
    assert "--resume" in status.resume
    found = json.loads(cli("status", tmp_path / "run", "--json").out)
    assert found == json.loads(json.dumps(asdict(status)))
    with pytest.raises(Killed):
        seen(stop_after(2, Killed()), overwrite=True)
    assert read_status(tmp_path / "run").state == "interrupted"


def test_a_run_that_fails_before_its_first_round(run_config, tmp_path, monkeypatch):
    import server_app

    def refuse(*_):
        raise UserError("nobody came")

    monkeypatch.setattr(server_app, "join", refuse)
    with pytest.raises(UserError, match="nobody came"):
        run_in_process(run_config(out=str(tmp_path / "run"), **FAST), tmp_path / "run", print)
    status = read_status(tmp_path / "run")
    found = (status.state, status.reason, status.round, status.resume)
    assert found == ("failed", "nobody came", 0, "")


def test_a_server_that_gathers_its_clients_has_no_round_of_an_earlier_run(seen, tmp_path):
    seen()
    with exclusive(tmp_path / "run", SERVER):
        status = read_status(tmp_path / "run")
    assert (status.state, status.round, status.rounds) == ("running", 0, None)
    assert "0 of ?" in render(status)


def test_a_line_that_is_being_written_is_not_read(seen, tmp_path):
    with pytest.raises(Killed):
        seen(stop_after(2, Killed()), client_fraction=0.9)
    path = tmp_path / "run" / "history.jsonl"
    whole = path.read_bytes()
    for size_ in range(len(whole) - 300, len(whole)):
        path.write_bytes(whole[:size_])
        assert read_status(tmp_path / "run").round == 1
    path.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(UserError, match=r"history.jsonl: expected a JSON object per line"):
        read_status(tmp_path / "run")


def test_it_may_be_read_at_any_instant(seen, tmp_path):
    """A concurrent reader sees rounds that only increase, and never disturbs the server."""
    over, rounds = threading.Event(), []

    def read():
        while not over.is_set():
            try:
                status = read_status(tmp_path / "run")
            except UserError:
                continue
            if status.state == "running" and status.rounds:
                rounds.append(status.round)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        seen(rounds=12)
    finally:
        over.set()
        reader.join()
    assert len(set(rounds)) > 3 and rounds == sorted(rounds)


def test_two_who_look_at_once_take_each_other_for_no_server(tmp_path):
    with exclusive(tmp_path, SERVER):
        assert is_locked(tmp_path)
    with (tmp_path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)


# Clients


def test_a_client_that_drops_out_is_named(run, tmp_path):
    finished = run(app=unlike({1}, {2, 3, 4}), min_valid_replies=2, rounds=4, **FAST)
    status = read_status(finished.folder)
    assert status.answered == [0, 2]
    (absent,) = status.absent
    assert (absent.client, absent.rounds, absent.last_answered) == (1, 3, 1)
    assert "out of luck" in absent.reason and "\n" not in absent.reason
    rows = finished.result["history"]
    assert absent.seconds == pytest.approx(sum(row["round_seconds"] for row in rows[1:]))
    assert "2 of 3 answered in round 4" in render(status)
    assert "client 1: last answered in round 1, missed 3 rounds" in render(status)


def test_a_client_that_comes_back_is_no_longer_absent(run):
    finished = run(app=unlike({2}, {1, 2}), min_valid_replies=2, **FAST)
    assert [list(row["absent"]) for row in finished.result["history"]] == [["2"], ["2"], []]
    assert read_status(finished.folder).absent == []


def test_a_node_that_is_not_connected_is_named():
    from types import SimpleNamespace

    from dance_flwr.config.tree import RunConfig
    from dance_flwr.federation.server.grid import FederationGrid
    from dance_flwr.federation.server.polling import MessageLog

    grid = SimpleNamespace(get_node_ids=lambda: [11, 13])
    federation = FederationGrid(
        grid, {11: 0, 12: 1, 13: 2}, RunConfig(clients=3, min_valid_replies=2), MessageLog()
    )
    assert list(federation.get_node_ids()) == [11, 13]
    assert federation.take_absent() == {1: "its SuperNode is not connected"}
    assert federation.take_absent() == {}


def test_a_rejected_upload_and_its_sender_are_named(run, lines):
    def spoil(reply):
        record = reply.content["arrays"]
        record.pop(next(iter(record)))
        return reply

    finished = run(app=unlike({0}, {1, 2, 3}, spoil), min_valid_replies=2, **FAST)
    (absent,) = read_status(finished.folder).absent
    assert (absent.client, absent.last_answered) == (0, None) and "others or none" in absent.reason
    assert "client 0: never answered, missed 3 rounds" in render(read_status(finished.folder))
    rejected = of(lines, "upload_rejected")
    assert [(line["client"], line["round"]) for line in rejected] == [(0, 1), (0, 2), (0, 3)]
    assert all("expected the" in line["reason"] for line in rejected)


# JSON lines


def test_the_events_of_a_run(run, lines):
    finished = run(app=unlike({1}, {2}), min_valid_replies=2, rounds=3, **FAST)
    name = finished.result["run"]
    assert {line["run"] for line in lines} == {name}
    (begin,), (end,) = of(lines, "run_started"), of(lines, "run_ended")
    assert (begin["rounds"], begin["clients"], begin["method"]) == (3, 3, "fedavg-full")
    assert end["test_accuracy"] == finished.result["test_accuracy"]
    assert sorted(line["client"] for line in of(lines, "client_joined")) == [0, 1, 2]
    for row, line in zip(finished.result["history"], of(lines, "round_ended"), strict=True):
        assert (line["round"], line["accuracy"]) == (row["round"], row["val_accuracy"])
        assert line["seconds"] == row["round_seconds"]
        assert line["bytes_up"] == sum(row["bytes_up"].values())
        assert line["absent"] == [int(client) for client in row["absent"]]
    assert [line["round"] for line in of(lines, "validation_ended")] == [1, 2, 3]
    (failed,) = of(lines, "client_failed")
    assert (failed["client"], failed["round"], failed["level"]) == (1, 2, "warning")
    assert "luck" in failed["reason"]
    answers = [line for line in of(lines, "message_answered") if line["kind"] == "train"]
    expected = {(round_, client) for round_ in (1, 2, 3) for client in range(3)} - {(2, 1)}
    assert sorted((line["round"], line["client"]) for line in answers) == sorted(expected)


def test_a_failed_and_a_resumed_run(run, lines, tmp_path):
    with pytest.raises(QuorumError):
        run(app=unlike({1}, {2}), folder=tmp_path, **FAST)
    (failed,) = of(lines, "run_failed")
    assert failed["level"] == "error" and "client 1" in failed["reason"] and failed["round"] == 2
    finished = run(folder=tmp_path, resume=True, **FAST)
    (resumed,) = of(lines, "run_resumed")
    assert (resumed["run"], resumed["round"]) == (finished.result["run"], 1)


def test_a_line_holds_what_was_logged_and_nothing_that_json_does_not_know():
    record = logging.LogRecord("flwr", logging.WARNING, "", 0, "two\nlines of %d", (2,), None)
    record.facts = {"loss": float("nan"), "path": Path("x"), "nothing": None}
    with events.log_context(run="r", round=3):
        line = events._Format().format(record)
    assert "\n" not in line
    found = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    moment = datetime.fromisoformat(found.pop("time"))
    assert moment.utcoffset().total_seconds() == 0
    assert found == {
        **{"level": "warning", "event": "log", "message": "two\nlines of 2"},
        **{"run": "r", "round": 3, "loss": "nan", "path": "x"},
    }
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        record.exc_info = sys.exc_info()
    assert "ZeroDivisionError" in json.loads(events._Format().format(record))["traceback"]


def test_a_process_writes_json_lines_when_asked(run_config, tmp_path):
    config = run_config(out=str(tmp_path / "run"), **FAST)
    prepare(config)
    (tmp_path / "run.toml").write_text(to_toml(config))
    command = [sys.executable, "-m", "dance_flwr", "run", "--config", tmp_path / "run.toml"]
    options = {"capture_output": True, "text": True, "check": True, "cwd": PROJECT}
    done = subprocess.run(command, env=os.environ | {"DANCE_FLWR_LOG": "json"}, **options)
    lines = done.stderr.splitlines()
    found = [json.loads(line) for line in lines]
    assert {"run_started", "round_ended", "run_ended", "message_answered", "log"} <= {
        line["event"] for line in found
    }
    assert all(
        datetime.fromisoformat(line["time"]) and line["level"] and "message" in line
        for line in found
    )
    assert any(line["event"] == "log" and line["message"].startswith("client 0:") for line in found)
    kept = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [line for line in lines if '"event": "log"' not in line] == [
        line for line in kept if '"log"' not in line
    ]
    assert len(kept) <= len(lines)


def test_a_client_that_drops_out_under_masks_is_named(run):
    from flwr.app import Error, Message

    import client_app

    def app(message, context):
        late = message.content.config_records.get("config", {}).get("server-round", 0) > 2
        if context.node_config["partition-id"] == 1 and late:
            return Message(Error(0, "gone"), reply_to=message)
        return client_app.app(message, context)

    masked = {"privacy_secure_aggregation": True, "privacy_threshold": 0.6}
    finished = run(app=app, clients=4, **masked, **FAST)
    assert [(a.client, a.last_answered) for a in read_status(finished.folder).absent] == [(1, 2)]
