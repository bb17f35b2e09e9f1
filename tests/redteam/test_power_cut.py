"""What is promised to be on the device is there, under its name, after a power cut."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from support.killing import Killed

import client_app
from dance_flwr.config.tree import parse
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy.certificates import make_key
from dance_flwr.disk import atomic_file, atomic_path
from dance_flwr.federation.client.admission import TRAININGS, count_task
from dance_flwr.federation.flower import TaskIdentity
from dance_flwr.federation.node_config import terms_of
from dance_flwr.federation.privacy.accounting import ACCOUNT, PrivacyAccount
from dance_flwr.federation.wire import keys
from dance_flwr.nn.calibration import TEMPERATURES, Calibration


class Device:
    """A disk that keeps what was flushed: content of files, and names of folders, by inode."""

    def __init__(self):
        self.files, self.names = {}, {}

    def flush(self, descriptor):
        """Keep what an open file or folder holds now."""
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(descriptor) as entries:
                self.names[status.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self.files[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def read(self, path, root):
        """Return what a file below `root`, an old folder, holds after a power cut; None if lost."""
        inode = root.stat().st_ino
        for name in path.relative_to(root).parts:
            inode = self.names.get(inode, {}).get(name)
        return self.files.get(inode)


@pytest.fixture
def device(monkeypatch):
    found, flush = Device(), os.fsync

    def fsync(descriptor):
        flush(descriptor)
        found.flush(descriptor if isinstance(descriptor, int) else descriptor.fileno())

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def spend(folder):
    for _ in range(2):
        PrivacyAccount(folder).spend("run", 4.0, lambda account: "")
    return folder / ACCOUNT


def train(folder):
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    config = ConfigRecord({keys.RUN: "run", keys.ROUND: 1})
    records = RecordDict({keys.CONFIG: config, keys.ARRAYS: ArrayRecord()})
    terms = terms_of({keys.MAX_ROUNDS: 4, keys.MAX_TRAININGS: 8})
    count_task(Message(records, 1, keys.TRAIN), keys.TRAIN, folder, terms, parse({}))
    return folder / TRAININGS


def lasting(folder):
    with atomic_file(folder / "file", lasting=True) as file:
        file.write(b"content")
    return folder / "file"


def renamed(folder):
    """As safetensors does, which writes beside the draft and renames."""
    with atomic_path(folder / "file", lasting=True) as draft:
        draft.with_suffix(".new").write_bytes(b"content")
        draft.with_suffix(".new").replace(draft)
    return folder / "file"


def key(folder):
    make_key(folder / "key")
    return folder / "key"


@pytest.mark.parametrize("place", ["", "new/folders"])
@pytest.mark.parametrize("write", [spend, train, lasting, renamed, key])
def test_what_is_on_the_device_when_a_call_returns_is_found_again(device, tmp_path, write, place):
    path = write(tmp_path / place)
    assert device.read(path, tmp_path) == path.read_bytes()


@pytest.mark.parametrize("stage", [keys.EVALUATE, keys.SEAL])
def test_after_a_power_cut_other_clients_get_no_other_final_model(
    run, run_config, device, tmp_path, monkeypatch, stage
):
    """Client 0 has seen the final model, or the temperature; client 3 does not come back."""
    settings = {"method": "fedavg-full", "clients": 4, "rounds": 2, "min_valid_replies": 3}
    shutil.copytree(prepare(run_config(**settings)).folder, tmp_path / "sites")
    data = {client: tmp_path / "sites" / f"client-{client}" for client in range(4)}
    nodes = {
        1 + client: {keys.PARTITION_ID: client, keys.DATA_PATH: str(path)}
        for client, path in data.items()
    }
    fits = iter(TEMPERATURES)  # that of other clients is another one
    honest = Calibration.fit

    def fit(*arguments):
        *rest, settled = arguments
        return honest(*rest, next(fits) if settled is None else settled)

    monkeypatch.setattr(Calibration, "fit", fit)
    folder, older, asked = tmp_path / "run", {}, []

    def cut(message):
        if message.metadata.src_node_id or not message.has_content():
            return
        config, kind = message.content.config_records["config"], message.metadata.message_type
        if kind == keys.TRAIN and config[keys.ROUND] == 2 and not older:
            older.update({path.name: path.read_bytes() for path in folder.iterdir()})
        if kind == stage and (config.get(keys.FINAL) or kind == keys.SEAL):
            asked.append(message)
            if len(asked) == 2:
                raise Killed

    with pytest.raises(Killed):
        run(folder=folder, node_configs=nodes, on_message=cut, **settings)
    facts = json.loads(
        (data[0] / "runs" / asked[0].content["config"]["run"] / "final.json").read_text()
    )
    # What was not flushed is as it was some seconds before.
    for name in older.keys() | {path.name for path in folder.iterdir()}:
        content = device.read(folder / name, tmp_path) or older.get(name)
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)

    def three(message, context):
        if context.node_config[keys.PARTITION_ID] == 3:
            raise RuntimeError("another one has no power")
        return client_app.app(message, context)

    finished = run(folder=folder, node_configs=nodes, app=three, resume=True, **settings)
    assert finished.result["model_fingerprint"] == facts["model_fingerprint"]
    assert [row["client"] for row in finished.result["clients"]] == [0, 1, 2]
    told = [
        json.loads((path / "runs" / facts["run"] / "final.json").read_text())
        for path in list(data.values())[:3]
    ]
    temperature = finished.result["calibration"]["temperature"]
    assert [each["calibration"]["temperature"] for each in told] == [temperature] * 3
    if stage == keys.SEAL:
        assert temperature == TEMPERATURES[0]
