"""A killed run resumes from its last complete round, and ends as if it had never stopped."""

import json
import shutil
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from support.killing import Kill, Killed, asks, same
from support.resuming import breaking, check_kept_arrays
from support.resuming import stop_and_go as stop_and_go

import client_app
import server_app
from dance_flwr import PROTOCOL
from dance_flwr.cli.report import accuracy_table
from dance_flwr.config.text import read_config, to_toml
from dance_flwr.config.tree import flatten
from dance_flwr.data.prepare import prepare
from dance_flwr.errors import QuorumError, ResumeError, UserError
from dance_flwr.federation.privacy.dp import spent_epsilon
from dance_flwr.methods import server_side
from dance_flwr.nn.moving import HOST
from dance_flwr.runs import checkpoint, recorder
from dance_flwr.runs.locks import exclusive
from dance_flwr.runs.result import read_result
from dance_flwr.runs.run import FINISHED, read_status
from dance_flwr.runs.simulation.in_process import InProcessGrid

SEEDED = {"privacy_seeded": True, "privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
PLAIN = {"method": "fedavg-full"}


def to_train(message):
    down = message.metadata.src_node_id == 0 and message.has_content()
    return (
        down
        and message.metadata.message_type == "train"
        and "config" in message.content.config_records
    )


def half_written(monkeypatch, name, number):
    """Kill while the n-th file of this name is written, half of which is on the disk."""
    real, kill = Path.write_bytes, Kill(lambda path: path.name.startswith(f".{name}."), number)

    def write_bytes(path, content):
        real(path, content[: len(content) // 2])
        kill(path)
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)


def between_names(monkeypatch, number):
    """Kill before the n-th checkpoint gets its name, when the previous one has lost it."""
    real, kill = (
        Path.replace,
        Kill(lambda path, name: name.name == "checkpoint.safetensors", number),
    )

    def replace(path, name):
        kill(path, name)
        return real(path, name)

    monkeypatch.setattr(Path, "replace", replace)


@pytest.fixture(scope="module", autouse=True)
def hashed_once():
    """Hash the encoder's files once, as they do not change during these tests."""
    from dance_flwr.data.text import encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "file_sha256", lru_cache(encoder.file_sha256))
        yield


# Killed at any instant

FAST = {"rounds": 3, "local_epochs": 1, "clients": 2}
DANCE = {**FAST, "dance_text_refresh_every": 2, "dance_core_refresh_every": 1, "ema_decay": 0.5}
INSTANTS = {
    "first-round": lambda _: asks("train", 1, 2),
    "some-trained": lambda _: asks("train", 2, 2),
    "all-trained": lambda _: asks("evaluate", 3),
    "validated": lambda patch: breaking(patch, recorder.Recorder, "_announce", lambda n: n == 1),
    "at-the-end": lambda _: Kill(
        lambda m: m.has_content() and m.content.config_records.get("config", {}).get("final")
    ),
    "in-the-mean": lambda patch: breaking(patch, server_side, "decode_update", lambda n: n == 2),
    "in-the-checkpoint": lambda patch: half_written(patch, "checkpoint.safetensors", 3),
    "before-the-checkpoint": lambda p: breaking(p, checkpoint.Checkpoint, "save", lambda n: n == 3),
    "between-two-checkpoints": lambda patch: between_names(patch, 3),
    "before-the-best-model": lambda p: breaking(p, recorder, "save", lambda n: n == 1),
    "in-the-best-model": lambda patch: half_written(patch, "model.safetensors", 1),
    "in-the-result": lambda p: breaking(p, recorder, "asdict", lambda n: n == 5),
}


CLIENTS_MATTER = ("some-trained", "validated", "at-the-end", "in-the-checkpoint")


@pytest.mark.parametrize(
    ("instant", "method"),
    [*[(name, "dance") for name in CLIENTS_MATTER], *[(name, "fedavg-full") for name in INSTANTS]],
)
def test_a_killed_run_ends_as_if_it_had_not_been(
    reference, stop_and_go, monkeypatch, instant, method
):
    keys = DANCE if method == "dance" else {**FAST, **PLAIN}
    finished = stop_and_go(INSTANTS[instant](monkeypatch), **keys)
    whole = reference(**keys)
    same(whole, finished)
    assert len(finished.result["resumed_after"]) == 1 and "resumed_after" not in whole.result


SETTINGS = {
    "static": {"dance_core_refresh_every": 0, "dance_text_refresh_every": 0},
    "every-2": {
        "rounds": 4,
        "dance_core_refresh_every": 2,
        "dance_text_refresh_every": 2,
        "evaluate_every": 2,
    },
    "sampled": {
        **{"rounds": 4, "clients": 3, "client_fraction": 0.67, "evaluate_every": 2},
        **{"dance_core_refresh_every": 1, "dance_coverage_penalty": 1.0},
    },
    "masked-adam": {
        **{"privacy_secure_aggregation": True, "strategy": "fedadam", "ema_decay": 0.5},
        **{"clients": 3, "dance_core_refresh_every": 2, "dance_text_refresh_every": 2},
    },
    "central": {
        "rounds": 4,
        "privacy_dp": "central",
        "privacy_clipping": "adaptive",
        **PLAIN,
        **SEEDED,
    },
    "poisson": {
        "rounds": 4,
        "clients": 3,
        "privacy_dp": "central",
        "client_fraction": 0.5,
        "ema_decay": 0.5,
        **PLAIN,
        **SEEDED,
    },
    "local-only": {
        "method": "local-only",
        "rounds": 4,
        "clients": 3,
        "client_fraction": 0.67,
        "evaluate_every": 2,
    },
    "distributed": {
        **{
            "privacy_dp": "distributed",
            "privacy_clipping": "adaptive",
            "strategy": "fedavgm",
            "clients": 3,
        },
        **{"privacy_secure_aggregation": True, "ema_decay": 0.5, **PLAIN, **SEEDED},
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_a_run_keeps_between_rounds_is_kept(reference, stop_and_go, monkeypatch, name):
    keys = {**FAST, **SETTINGS[name]}
    expected = reference(**keys)
    breaking(
        monkeypatch, checkpoint.Checkpoint, "save", lambda n: n == keys["rounds"]
    )  # the first is of the start
    same(expected, stop_and_go(**keys))


# Strategies without a run: `test_round.py::test_a_restored_round_continues_bit_by_bit`.
def test_a_checkpoint_leaves_out_nothing_that_a_strategy_keeps(run, monkeypatch):
    check_kept_arrays(run, monkeypatch, strategy="fedadam", **PLAIN)


def test_a_run_may_be_killed_again_and_again(reference, run, tmp_path):
    """Also twice in the same round, and within a round."""
    folder = tmp_path / "run"
    for number, kill in enumerate(
        [asks("train", 2, 2), asks("train", 2, 2), asks("train", 2), asks("evaluate", 3)]
    ):
        with pytest.raises(Killed):
            run(folder=folder, on_message=kill, resume=number > 0, **DANCE)
    finished = run(folder=folder, resume=True, **DANCE)
    same(reference(**DANCE), finished)
    assert finished.result["resumed_after"] == [1, 1, 1, 2]


def test_a_client_that_lost_its_state_selects_its_core_anew(run, tmp_path, monkeypatch):
    from dance_flwr.dance import algorithm as local

    said, folder, keys = [], tmp_path / "run", {**SETTINGS["static"], "rounds": 4}
    monkeypatch.setattr(local.LOG, "warning", lambda text, *values: said.append(text % values))
    with pytest.raises(Killed):
        run(folder=folder, on_message=asks("train", 3), **keys)
    assert not said
    partition = checkpoint.Checkpoint.load(folder)
    root = prepare(partition.config).folder
    assert root.name == partition.partition
    shutil.rmtree(root / "client-1" / "runs" / partition.run)
    finished = run(folder=folder, resume=True, **keys)
    said = [line for line in said if not line.startswith("calibration: ")]  # of so few nodes
    assert len(said) == 1 and said[0].startswith("client 1: ") and "again" in said[0]
    stored = [finished.store(client).load(HOST) for client in range(3)]
    assert [state.core_round for state in stored] == [1, 3, 1]
    assert len(finished.result["history"]) == 4


# Refusals


@pytest.fixture(scope="module")
def stopped(run, tmp_path_factory):
    """The folder of a run that was killed in its second round, for copying."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Killed):
        run(folder=folder, on_message=asks("train", 2), **PLAIN)
    return folder


@pytest.fixture
def copied(stopped, tmp_path):
    return Path(shutil.copytree(stopped, tmp_path / "copy"))


def refused(cli, folder, *more):
    done = cli("run", "--resume", folder, *more)
    assert done.code == 2 and done.err[-1].startswith("error: ") and "expected" in done.err[-1]
    assert "found" in done.err[-1] and "Traceback" not in "".join(done.err)
    return done.err[-1]


@dataclass
class Later(checkpoint.Checkpoint):
    """A checkpoint of a release that keeps more."""

    surprise: int = 1


def changed(folder, kind=checkpoint.Checkpoint, **facts):
    """Store the checkpoint of a run with other facts."""
    kind(**vars(checkpoint.Checkpoint.load(folder)) | facts).save(folder)


def with_sizes_as_lists(folder):
    """As versions wrote it that knew a client by its place."""
    sizes = checkpoint.Checkpoint.load(folder).sizes
    changed(folder, sizes={name: list(by_client.values()) for name, by_client in sizes.items()})


def damaged(folder):
    path = folder / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


OTHER_PROTOCOL = f"expected a checkpoint of protocol {PROTOCOL}, found one of 99; install"


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (shutil.rmtree, "checkpoint.safetensors of an interrupted run, found none"),
        (lambda folder: (folder / "result.json").touch(), "finished"),
        (lambda folder: changed(folder, protocol=99), OTHER_PROTOCOL),
        (lambda folder: changed(folder, Later, protocol=99), OTHER_PROTOCOL),
        (with_sizes_as_lists, "of this version"),
        (damaged, "checkpoint.safetensors: expected"),
        # Those that describe other data are named, the others are not.
        (
            lambda folder: changed(folder, described={0: "0" * 16}),
            "clients {0: '0000000000000000'}, found",
        ),
        (lambda folder: changed(folder, data="0" * 16), "0000000000000000"),
    ],
    ids=["absent", "finished", "protocol", "later", "lists", "damaged", "client", "partition"],
)
def test_what_cannot_be_resumed_is_refused(cli, copied, alter, words):
    alter(copied)
    assert words in refused(cli, copied)


def test_another_configuration_is_refused(run, run_config, copied):
    with pytest.raises(ResumeError, match=r"hidden-dim = 9 instead of 8.*resume\.toml"):
        run(folder=copied, resume=True, hidden_dim=9, **PLAIN)
    with pytest.raises(UserError, match="out"):
        run_config(resume=True)


def test_other_data_is_refused_before_anything_is_made_of_it(cli, run_config, copied, tiny):
    partitions = prepare(run_config()).folder.parent
    before = sorted(path.name for path in partitions.iterdir())
    path = next(tiny.glob("nodes.*"))
    content = path.read_bytes()
    try:
        path.write_bytes(content + b"0")
        line = refused(cli, copied)
    finally:
        path.write_bytes(content)
    assert "data" in line
    assert before == sorted(path.name for path in partitions.iterdir())


# Clients that are absent at a start


QUORUM = {**PLAIN, "clients": 4, "min_valid_replies": 3}


def without(*absent, described=None):
    """The ClientApp, whose clients of these numbers describe no data; `described` alters those."""

    def app(message, context):
        client = context.node_config["partition-id"]
        reply = client_app.app(message, context)
        if message.metadata.message_type != "query.describe":
            return reply
        if client in absent:
            raise RuntimeError("a disk is gone")
        return described(client, reply) if described else reply

    return app


def stop(run, folder, app, **keys):
    with pytest.raises(Killed):
        run(folder=folder, app=app, on_message=asks("train", 2), **keys)


def nodes_of(finished):
    return {row["client"]: row["nodes"] for row in finished.result["clients"]}


@pytest.mark.parametrize(("first", "second"), [((), (3,)), ((0,), (2,))])
def test_a_run_resumes_when_a_client_was_absent_at_one_start(run, tmp_path, first, second):
    stop(run, tmp_path, without(*first), **QUORUM)
    finished = run(folder=tmp_path, app=without(*second), resume=True, **QUORUM)
    sizes = [finished.data(client).num_nodes for client in range(4)]
    assert finished.result["nodes_per_client"] == sizes
    assert nodes_of(finished) == {k: sizes[k] for k in range(4) if k not in second}
    encoded = {row["client"] for row in finished.result["tokens"]["encoder"]["clients"]}
    assert encoded == set(range(4)) and len(finished.result["encoder_tokens"]) == 4
    assert finished.result["resumed_after"] == [1]


def test_a_run_without_a_client_that_left_is_the_one_that_never_had_it(run, tmp_path):
    """Client 3 joins after round 1 and leaves when all have ended: a copy of `out` forgets it."""
    stop(run, tmp_path / "run", without(3), **QUORUM)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    joined = run(folder=tmp_path / "run", app=without(), resume=True, **QUORUM)
    left = run(folder=tmp_path / "copy", app=without(3), resume=True, **QUORUM)
    never = run(app=without(3), **QUORUM)
    assert left.result["model_fingerprint"] == never.result["model_fingerprint"]
    assert left.result["test_accuracy"] == never.result["test_accuracy"]
    assert joined.result["model_fingerprint"] != never.result["model_fingerprint"]
    # What it costs: the rounds after the copy once more.
    repeated = len(left.result["history"]) - left.result["resumed_after"][0]
    assert repeated == joined.config.rounds - 1


def test_the_nodes_of_a_client_are_its_own_where_another_was_absent(run):
    """The lists of a result are of the clients that were there; a row says whose it is."""
    finished = run(app=without(0), **QUORUM)
    assert nodes_of(finished) == {k: finished.data(k).num_nodes for k in (1, 2, 3)}
    assert accuracy_table(finished.result).row_count == 4


def test_other_data_is_noticed_when_an_absent_client_is_back(run, tmp_path):
    def altered(client, reply):
        if client == 3:
            reply.content["config"]["num_nodes"] += 1
        return reply

    stop(run, tmp_path, without(), **QUORUM)
    with pytest.raises(Killed):
        run(folder=tmp_path, app=without(3), on_message=asks("train", 2), resume=True, **QUORUM)
    with pytest.raises(ResumeError, match=r"clients \{3: '"):
        run(folder=tmp_path, app=without(0, described=altered), resume=True, **QUORUM)


def test_clients_that_never_met_have_the_same_classes(run, tmp_path):
    def other(client, reply):
        reply.content["config"]["class_names"] = ["x", "y", "z"]
        return reply

    keys = {**QUORUM, "min_valid_replies": 2}
    stop(run, tmp_path, without(0, 1), **keys)
    with pytest.raises(ResumeError, match="the data and the partition"):
        run(folder=tmp_path, app=without(2, 3, described=other), resume=True, **keys)


def test_a_client_that_is_absent_ends_a_resume_under_masks(run, tmp_path):
    """Else counts of four clients and of three would be known: their difference is one's own."""
    keys = {**PLAIN, "clients": 4, "privacy_secure_aggregation": True}
    stop(run, tmp_path, without(), **keys)
    with pytest.raises(QuorumError, match="expected at least 4 valid replies, found 3; client 3"):
        run(folder=tmp_path, app=without(3), resume=True, **keys)


# The command line, and what a failure says


def test_the_command_goes_on_and_prints_the_table(cli, copied, reference):
    (copied / "history.jsonl").write_text('{"round": 1, "los')  # the server died within a line
    done = cli("run", "--resume", copied)
    assert done.code == 0, done.err
    result = read_result(copied)
    assert result["model_fingerprint"] == reference(**PLAIN).result["model_fingerprint"]
    assert f"accuracy    {result['test_accuracy']:.1%} of" in done.out
    assert f"{result['test_accuracy']:.4f}" in cli("report", copied).out and result[
        "resumed_after"
    ] == [1]
    assert [
        json.loads(line)["round"] for line in (copied / "history.jsonl").read_text().splitlines()
    ] == [1, 2, 3]
    assert "finished" in refused(cli, copied)


def test_a_killed_run_is_resumed_once_its_server_has_been_stopped(cli, copied):
    with ExitStack() as server:
        server.enter_context(exclusive(copied, "this test"))
        threading.Timer(1.5, server.close).start()
        assert cli("run", "--resume", copied).code == 0


def test_a_server_that_stays_at_work_is_told_of(cli, copied, monkeypatch):
    monkeypatch.setattr("dance_flwr.runs.locks._CLOSING_SECONDS", 0.1)
    began = time.monotonic()
    with exclusive(copied, "this test"):
        done = cli("run", "--resume", copied)
    assert time.monotonic() - began < 30
    assert (
        done.code == 2
        and "expected nobody else at work here, found the server of a run" in done.err[-1]
    )


def test_the_engine_s_run_says_how_to_go_on_and_does(run_config, tmp_path, monkeypatch, reference):
    """As Flower starts it: the second time with another run id, and with the key `resume`."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    config = run_config(out=str(tmp_path / "out"), **PLAIN)

    def start(config, run_id, wrong):
        def fail(message):
            if wrong and to_train(message) and message.content["config"]["server-round"] == 2:
                raise wrong

        grid = InProcessGrid(client_app.app, flatten(config), 3, run_id=run_id, on_message=fail)
        server_app.main(grid, Context(run_id, 0, {}, RecordDict(), flatten(config)))

    with pytest.raises(RuntimeError):
        start(config, 71, RuntimeError("the link\nis down"))
    reason = (tmp_path / "out" / "error.txt").read_text()
    assert reason.startswith("RuntimeError: the link is down; 1 of 3 rounds are kept")
    assert len(reason.splitlines()) == 1 and f"--resume {tmp_path / 'out'}" in reason
    start(replace(config, resume=True), 72, None)
    result = read_result(tmp_path / "out")
    assert result["run"] == "71" and not (tmp_path / "out" / "error.txt").exists()
    assert result["model_fingerprint"] == reference(**PLAIN).result["model_fingerprint"]


def test_the_file_for_flower_s_own_command_holds_the_whole_configuration(stopped):
    config = read_config([stopped / "resume.toml"], [], {})
    assert config.resume and config.out == str(stopped) and config.method == "fedavg-full"


# Noise that was drawn twice is paid twice


def test_a_repeated_round_with_fresh_noise_is_charged_again(run, tmp_path):
    keys = {"rounds": 4, "privacy_dp": "central", "privacy_epsilon": 20.0, **PLAIN}
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        run(folder=folder, on_message=asks("train", 3, 2), **keys)
    finished = run(folder=folder, resume=True, **keys)
    rows = finished.result["history"]
    assert len(rows) == 3, "the budget of four rounds: three, and one that was asked twice"
    assert (
        rows[-1]["epsilon"]
        == finished.result["privacy"]["epsilon"]
        == spent_epsilon(finished.config, 4)
    )
    assert rows[-1]["epsilon"] == pytest.approx(20.0)
    assert rows[1]["epsilon"] == spent_epsilon(finished.config, 2)


def test_a_finished_run_is_replaced_with_overwrite_only(cli, run_config, tmp_path):
    out = tmp_path / "mine"
    config = run_config(**{**FAST, **PLAIN, "rounds": 1}, data_root=str(tmp_path / "data"))
    (tmp_path / "config.toml").write_text(to_toml(config))
    command = ["run", "--config", tmp_path / "config.toml", "--out", out]
    assert cli(*command).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    refused = cli(*command, "--seed", "1")
    assert refused.code == 2 and "found result.json" in refused.err[-1]
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert cli(*command, "--seed", "1", "--overwrite").code == 0
    result = read_result(out)
    assert result["config"]["seed"] == 1 and not result["config"]["overwrite"]


# A folder that holds an interrupted run


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture
def again(cli, run_config, tmp_path):
    """A function that calls `dance-flwr run` without `--resume`."""

    def start(folder, *more, **keys):
        (tmp_path / "again.toml").write_text(to_toml(run_config(**PLAIN, **keys)))
        command = ["run", "--config", tmp_path / "again.toml", "--out", folder]
        return cli(*command, *more)

    return start


def test_an_interrupted_run_is_replaced_with_overwrite_only(again, copied):
    before = contents(copied)
    done = again(copied)
    assert done.code == 2 and done.err[-1] == (
        f"error: {copied}: expected a folder without a run, found an interrupted run, 1 of 3 "
        f"rounds; resume it with `dance-flwr run --resume {copied}`, or replace it with "
        "--overwrite (overwrite=true for `flwr run`)"
    )
    assert contents(copied) == before
    assert again(copied, "--overwrite").code == 0
    result = read_result(copied)
    assert len(result["history"]) == 3 and "resumed_after" not in result


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        # Clients with their own data are resumed by `deploy run`.
        (
            lambda folder: changed(folder, partition=""),
            "`dance-flwr deploy run --resume {folder}`, or replace",
        ),
        (
            lambda folder: changed(folder, protocol=99),
            "resume it with a release of protocol 99, or replace",
        ),
        (damaged, "checkpoint.safetensors cannot be read, rounds in history.jsonl: 0;"),
    ],
    ids=["own data", "protocol", "damaged"],
)
def test_the_refusal_to_replace_a_run_says_how_it_is_resumed(again, copied, alter, words):
    alter(copied)
    before = contents(copied)
    assert words.format(folder=copied) in again(copied).err[-1]
    assert contents(copied) == before


def test_a_run_that_completed_no_round_is_replaced(run, again, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        run(folder=folder, on_message=asks("train", 1), **PLAIN)
    assert (folder / "checkpoint.safetensors").is_file()
    assert again(folder).code == 0 and (folder / "result.json").is_file()


# What a refused run leaves in the folder of an earlier one


@pytest.fixture
def refused_by_server(run_config, monkeypatch):
    """A function that starts a run as `flwr run` does, which is refused; returns the reason."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)

    def start(folder, **keys):
        values = flatten(run_config(out=str(folder), **{**PLAIN, **keys}))
        grid = InProcessGrid(client_app.app, values, 3, run_id=99)
        with pytest.raises(UserError) as found:
            server_app.main(grid, Context(99, 0, {}, RecordDict(), values))
        return str(found.value)

    return start


UNFIT = {"method": "local-only", "privacy_secure_aggregation": True}  # which `check_method` refuses


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "without a finished run"),
        ({"resume": True}, "of a finished one"),
        (UNFIT, "privacy.secure-aggregation"),
        ({**UNFIT, "overwrite": True}, "privacy.secure-aggregation"),
    ],
    ids=["new", "resume", "unfit", "unfit to replace it"],
)
def test_a_refused_run_leaves_a_finished_one_as_it_is(
    refused_by_server, reference, tmp_path, keys, reason
):
    folder = shutil.copytree(reference(**PLAIN).folder, tmp_path / "run")
    before = contents(folder)
    assert reason in refused_by_server(folder, **keys)
    assert contents(folder) == before
    assert read_status(folder).state == FINISHED


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "found an interrupted run"),
        ({"resume": True, "learning_rate": 0.5}, "learning-rate = 0.5 instead of"),
        (UNFIT, "privacy.secure-aggregation"),
    ],
    ids=["new", "resume", "unfit"],
)
def test_a_refused_run_leaves_an_interrupted_one_as_it_is(refused_by_server, copied, keys, reason):
    (copied / "error.txt").write_text("why it stopped\n")
    before = contents(copied)
    assert reason in refused_by_server(copied, **keys)
    assert contents(copied) == before
    assert read_status(copied).reason == "why it stopped"


def test_a_server_that_finds_another_at_work_leaves_its_folder_as_it_is(
    refused_by_server, tmp_path
):
    with exclusive(tmp_path, "this test"):  # which waits for its clients
        assert "nobody else at work here" in refused_by_server(tmp_path)
    assert not contents(tmp_path)
