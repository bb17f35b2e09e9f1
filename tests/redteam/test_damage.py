"""A bit that flips on a disk: in a client's data, a checkpoint, a model, a state, a result."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.killing import Killed

from dance_flwr.config.paths import MODEL, RESULT, STATE, state_root
from dance_flwr.data.digests import check_files
from dance_flwr.data.prepare import prepare
from dance_flwr.disk import read_npz, write_json, write_npz
from dance_flwr.errors import DataError, ResumeError, UserError
from dance_flwr.runs.checkpoint import CHECKPOINT, Checkpoint
from dance_flwr.runs.result import read_result
from dance_flwr.runs.resume import how_to_resume
from dance_flwr.runs.run import read_status

PLACES = np.linspace(0, 1, 9)  # from the first bit of a file to the last


def flip(path: Path, place: float):
    content = bytearray(path.read_bytes())
    bit = min(int(place * 8 * len(content)), 8 * len(content) - 1)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.fixture
def client(dance, tmp_path):
    left = ("runs", "derived", "*.lock", "privacy-account.json", "sum-partners.json")
    ignore = shutil.ignore_patterns(*left)  # by runs
    shutil.copytree(dance.partition / "client-0", tmp_path / "client-0", ignore=ignore)
    return tmp_path / "client-0"


def test_every_file_of_a_client_has_a_digest(client):
    files = {path.relative_to(client).as_posix() for path in client.rglob("*") if path.is_file()}
    replies = {name for name in files if name.startswith("llm/")}  # a cache, each with its own
    assert check_files(client).files.keys() == files - replies - {"client.json"}


def test_a_flipped_bit_in_any_file_of_a_client_is_found(client):
    for name in check_files(client).files:
        content = (client / name).read_bytes()
        for place in PLACES:
            flip(client / name, place)
            with pytest.raises(DataError, match=name):
                check_files(client)
            (client / name).write_bytes(content)
        (client / name).unlink()
        with pytest.raises(DataError, match="found none"):
            check_files(client)
        (client / name).write_bytes(content)
    check_files(client)


@pytest.mark.parametrize(
    "name", ["arrays/indices.npy", "text/chunk_embeddings.npy", "nodes.parquet"]
)
def test_a_run_does_not_start_on_damaged_data(run, run_config, name):
    keys = {"rounds": 1, "seed": 79}
    folder = prepare(run_config(**keys)).folder / "client-1"
    content = (folder / name).read_bytes()
    flip(folder / name, 0.7)
    try:
        with pytest.raises(UserError, match=f"client 1: .*{name}: expected the file") as error:
            run(**keys)
        assert "\n" not in str(error.value)
    finally:
        (folder / name).write_bytes(content)


@pytest.fixture
def stopped(run, tmp_path):
    """The folder of a run that was killed after round 2, and its keys."""

    def kill(message):
        down = message.metadata.src_node_id == 0 and message.has_content()
        config = message.content.config_records.get("config", {}) if down else {}
        if config.get("server-round") == 3:
            raise Killed

    keys = {"method": "fedavg-full", "rounds": 3, "folder": tmp_path / "run"}
    with pytest.raises(Killed):
        run(on_message=kill, **keys)
    return tmp_path / "run", keys


def test_a_flipped_bit_in_a_checkpoint_is_found(stopped):
    folder, _ = stopped
    content = (folder / CHECKPOINT).read_bytes()
    Checkpoint.load(folder)
    for place in np.linspace(0, 1, 60):
        flip(folder / CHECKPOINT, place)
        with pytest.raises(ResumeError) as error:
            Checkpoint.load(folder)
        assert "\n" not in str(error.value)
        (folder / CHECKPOINT).write_bytes(content)


def test_a_run_does_not_go_on_from_a_damaged_checkpoint(stopped, run):
    folder, keys = stopped
    flip(folder / CHECKPOINT, 0.6)
    with pytest.raises(ResumeError, match="start it again without resume"):
        run(resume=True, **keys)
    assert not (folder / RESULT).is_file()


def test_a_checkpoint_whose_digest_was_made_again_is_refused(stopped, run, monkeypatch, tmp_path):
    """Whoever can write the folder can compute a digest, but has not the key of the server."""
    folder, keys = stopped
    tampered = Checkpoint.load(folder)
    tampered.arrays["model"]["head_graph.bias"] += 1
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "of-somebody-else"))
    tampered.save(folder)
    Checkpoint.load(folder)
    monkeypatch.undo()
    with pytest.raises(ResumeError, match="altered, or with the key of another server") as error:
        run(resume=True, **keys)
    assert "\n" not in str(error.value) and not (folder / RESULT).is_file()


def test_who_lacks_the_key_of_a_deployment_is_told_how_to_resume(stopped, monkeypatch, tmp_path):
    """`deploy run` submits, and `deploy serve`, which has the key, resumes."""
    folder, _ = stopped
    checkpoint = Checkpoint.load(folder)
    checkpoint.partition = ""
    checkpoint.save(folder)
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "of-the-operator"))
    assert how_to_resume(folder).endswith(f"dance-flwr deploy run --resume {folder}")


def test_the_key_of_checkpoints_is_of_its_user_alone(stopped):
    folder, _ = stopped
    key = state_root() / "checkpoint.key"
    assert key.stat().st_mode & 0o777 == 0o600 and folder not in key.parents
    key.chmod(0o640)
    with pytest.raises(ResumeError, match="expected a file of this user alone") as error:
        Checkpoint.load(folder)
    key.chmod(0o600)
    assert "\n" not in str(error.value) and Checkpoint.load(folder).round == 2


def test_a_run_that_moved_to_another_machine_needs_the_key(stopped, monkeypatch, tmp_path):
    folder, _ = stopped
    secret = (state_root() / "checkpoint.key").read_bytes()
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "new"))
    with pytest.raises(ResumeError, match=r"copy .*checkpoint\.key"):
        Checkpoint.load(folder)
    assert not state_root().exists(), "to look makes no key"
    assert read_status(folder).round == 2, "to show it is not to resume it"
    state_root().mkdir(parents=True)
    (state_root() / "moved").write_bytes(secret)
    (state_root() / "moved").chmod(0o600)
    (state_root() / "moved").replace(state_root() / "checkpoint.key")
    assert Checkpoint.load(folder).round == 2


def test_a_damaged_best_model_is_found_on_resume(stopped):
    folder, _ = stopped
    checkpoint = Checkpoint.load(folder)
    checkpoint.best_round = 1  # so that the model is that of the file
    content = (folder / MODEL).read_bytes()
    from dance_flwr.fingerprint import model_fingerprint
    from dance_flwr.runs.result import load_model

    checkpoint.best_model = model_fingerprint(load_model(folder))
    assert checkpoint.best(folder)
    for place in PLACES[1:]:
        flip(folder / MODEL, place)
        with pytest.raises(ResumeError):
            checkpoint.best(folder)
        (folder / MODEL).write_bytes(content)


def test_a_damaged_result_or_model_is_one_line(dance, cli, tmp_path):
    for name in (RESULT, MODEL):
        for place in PLACES:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            shutil.copytree(dance.folder, tmp_path / "run")
            flip(tmp_path / "run" / name, place)
            done = cli("evidence", "verify", tmp_path / "run")
            assert "Traceback" not in "\n".join(done.err)
            assert done.code == 2 and len(done.err) == 1
            done = cli("status", tmp_path / "run")
            assert done.code in (0, 2) and len(done.err) <= 1


def test_a_flipped_bit_anywhere_in_a_result_is_found(dance, tmp_path):
    """Or the file means the same: in its layout, or as another spelling of a number."""
    content, result = (dance.folder / RESULT).read_bytes(), read_result(dance.folder)
    for place in np.linspace(0, 1, 500):
        (tmp_path / RESULT).write_bytes(content)
        flip(tmp_path / RESULT, place)
        try:
            assert read_result(tmp_path) == result
        except UserError as error:
            assert "\n" not in str(error)


def test_a_result_of_an_earlier_version_has_no_digest(dance, tmp_path):
    result = read_result(dance.folder) | {"schema": 1}
    write_json(tmp_path / RESULT, result)
    assert read_result(tmp_path) == result


def test_damaged_arrays_are_no_arrays(tmp_path):
    path = tmp_path / "arrays.npz"
    arrays = {"core": np.arange(40), "weights": np.linspace(0, 1, 33, dtype=np.float32)}
    write_npz(path, arrays)
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 3):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = read_npz(path)
        if found is not None:  # a bit that means nothing, or the name of an array
            for name in arrays.keys() & found.keys():
                np.testing.assert_array_equal(found[name], arrays[name])
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        assert read_npz(path) is None
    path.write_bytes(content)
    assert read_npz(path).keys() == arrays.keys() and read_npz(tmp_path / "none.npz") is None


def test_a_client_with_a_damaged_state_selects_a_new_core(run, caplog):
    """Nothing ends: a state is as good as lost."""
    done = []

    def damage(message):
        config = message.content.config_records.get("config", {}) if message.has_content() else {}
        if (
            config.get("server-round") == 2
            and message.metadata.message_type == "train"
            and not done
        ):
            folder = Path(str(config["partition-dir"])) / "client-0" / "runs" / str(config["run"])
            flip(folder / STATE, 0.5)
            flip(next(folder.glob("condensation-*.npz")), 0.5)
            done.append(folder)

    finished = run(rounds=3, seed=80, on_message=damage)
    assert done and len(finished.result["history"]) == 3


@pytest.mark.parametrize("name", ["arrays/split.npy", "arrays/indices.npy", "nodes.parquet"])
@pytest.mark.parametrize("bit", [True, False], ids=["a flipped bit", "an emptied file"])
def test_no_door_reads_a_client_folder_that_is_not_as_its_card_says(
    dance, cli, tmp_path, name, bit
):
    """Predicting from it, too, and looking at its evidence."""
    bundle = tmp_path / "bundle"
    assert cli("export", dance.folder, "--out", bundle).code == 0
    folder = shutil.copytree(dance.partition / "client-0", tmp_path / "client-0")
    table = tmp_path / "table.csv"
    assert cli("predict", bundle, "--data", folder, "--out", table).code == 0
    table.unlink()
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content if bit else b"")
    doors = [
        ("predict", bundle, "--data", folder, "--out", table),
        ("evidence", "show", dance.folder, "--client-folder", folder),
    ]
    for door in doors:
        done = cli(*door)
        assert done.code == 2 and not table.exists(), door
        assert f"{name}: expected the file that client.json describes" in " ".join(done.err), door
