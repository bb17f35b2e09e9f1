"""What is promised to be on the device is there, under its name, after a power cut."""

import os
import stat
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from dance_flwr.config.tree import parse
from dance_flwr.disk import atomic_file
from dance_flwr.federation.client.admission import TRAININGS, count_task
from dance_flwr.federation.flower import TaskIdentity
from dance_flwr.federation.node_config import terms_of
from dance_flwr.federation.privacy.accounting import ACCOUNT, PrivacyAccount
from dance_flwr.federation.wire import keys


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


@pytest.mark.parametrize(
    ("write", "place"),
    [(spend, ""), (train, ""), (lasting, ""), (spend, "new/folders"), (lasting, "new/folders")],
)
def test_what_is_on_the_device_when_a_call_returns_is_found_again(device, tmp_path, write, place):
    path = write(tmp_path / place)
    assert device.read(path, tmp_path) == path.read_bytes()
