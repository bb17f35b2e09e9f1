"""A node with a full disk says so in one line, leaves no drafts, and takes part again later."""

import errno
import os
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

import client_app
import server_app
from dance_flwr import disk as disk_module
from dance_flwr.config.paths import PREVIOUS, STATE
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import flatten
from dance_flwr.dance.plan import Condensation
from dance_flwr.dance.queue import Queue
from dance_flwr.dance.state import CONDENSATION, RunFolder
from dance_flwr.data.prepare import prepare
from dance_flwr.disk import atomic_file
from dance_flwr.evidence.pack import Packs
from dance_flwr.nn.moving import HOST
from dance_flwr.runs.result import read_result
from dance_flwr.runs.simulation.in_process import InProcessGrid

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def drafts(folder):
    """Drafts that were not removed; a lock is none."""
    hidden = [path for path in folder.rglob(".*") if path.is_file()]
    return [path for path in hidden if not path.name.endswith(".lock")]


# A client's store


@contextmanager
def full(path, **options):
    """`atomic_file` on a disk that is full: a part is written, then an error."""
    with atomic_file(path, **options) as file:
        file.write(b"half of it")
        raise FULL


def save(store, round_, count=2):
    import torch

    state = store.load(HOST, before=round_)
    if not state.core_round:  # the first of these rounds condenses
        queue = Queue(torch.arange(4), torch.tensor([0, 4]), torch.tensor([count]))
        times = torch.zeros(4, dtype=torch.int64)
        store.write(CONDENSATION, round_, Condensation(times, torch.zeros(4), queue))
        state.core_round = round_
    state.core, state.turn = torch.arange(count), state.turn + 1
    state.before, state.round = state.round, round_
    store.save(state)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_state_that_finds_no_room_leaves_those_before(tmp_path, monkeypatch, rounds):
    """Both states: the previous round may be asked again."""
    store = RunFolder(tmp_path, "run")
    store.folder.mkdir(parents=True)
    for round_ in range(1, rounds + 1):
        save(store, round_)
    before = contents(store.folder)
    assert set(before) == {*[STATE, PREVIOUS][:rounds], *["condensation-00001.npz"][:rounds]}
    monkeypatch.setattr(disk_module, "atomic_file", full)
    with pytest.raises(OSError, match="No space"):
        save(store, rounds + 1)
    assert contents(store.folder) == before
    monkeypatch.undo()
    save(store, rounds + 1)
    assert set(contents(store.folder)) == {
        *[STATE, PREVIOUS][: rounds + 1],
        "condensation-00001.npz",
    }


# A federation in which the disk of client 1 is full for a while


class Pretended:
    """A disk that is full between `take` and `give`: files open, but writing fails."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch

    def take(self):
        def choose(path, **options):
            return (full if path.is_relative_to(self.folder) else atomic_file)(path, **options)

        self.monkeypatch.setattr(disk_module, "atomic_file", choose)

    def give(self):
        self.monkeypatch.setattr(disk_module, "atomic_file", atomic_file)


class Mounted:
    """A small disk, filled up to so many pages."""

    def __init__(self, folder):
        self.folder, self.pages = folder, 1

    def take(self):
        page = b"\0" * os.sysconf("SC_PAGESIZE")
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(page)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            file.truncate(file.tell() - self.pages * len(page))  # so that a file can be begun

    def give(self):
        (self.folder / "filler").unlink()


@pytest.fixture
def disk(request, tmp_path, monkeypatch):
    """The disk of client 1, filled by `take` and emptied by `give`; pretended where none mounts."""
    try:
        return Mounted(request.getfixturevalue("mounted"))
    except pytest.skip.Exception:
        (tmp_path / "disk").mkdir(exist_ok=True)
        return Pretended(tmp_path / "disk", monkeypatch)


@pytest.fixture
def federation(run_config, dance, tmp_path):
    """A function that runs three nodes or more, the folder of client 1 on `disk`; returns the
    result and that client's store.

    Parameters
    ----------
    spoil : called with the kind of each message to client 1, its config, and None, or the reply to
        it
    """

    def start(disk, spoil, clients=3, **keys):
        partition = dance.partition
        if clients > 3:
            partition = prepare(run_config(clients=clients)).folder
        folders = [(disk if k == 1 else tmp_path) / f"client-{k}" for k in range(clients)]
        for client, folder in enumerate(folders):
            if not folder.exists():
                shutil.copytree(
                    partition / f"client-{client}",
                    folder,
                    ignore=shutil.ignore_patterns("runs"),
                )
        nodes = {
            client + 1: {"partition-id": client, "data-path": str(folder)}
            for client, folder in enumerate(folders)
        }

        def app(message, context):
            asked = dict(message.content.config_records.get("config", {}))
            if context.node_config["partition-id"] != 1:
                return client_app.app(message, context)
            spoil(message.metadata.message_type, asked, None)
            reply = client_app.app(message, context)
            spoil(message.metadata.message_type, asked, reply)
            return reply

        out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
        values = {"min_valid_replies": 2, "rounds": 4, "clients": clients, **keys}
        config = run_config(out=str(out), **values)
        server_app.run(InProcessGrid(app, flatten(config), nodes), config, out.name, out)
        return read_result(out), RunFolder(folders[1], out.name)

    return start


def taking_part(result):
    """The clients that uploaded, round by round."""
    return [
        [int(client) for client, up in row["bytes_up"].items() if up] for row in result["history"]
    ]


def state(store):
    fields = vars(store.load(HOST))
    return {name: np.asarray(value).tolist() for name, value in fields.items()}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"dance_text_refresh_every": 1}, id="packs find no room"),
        pytest.param({"dance_evidence_keep": "final"}, id="the state finds no room"),
        pytest.param(
            {"dance_text_refresh_every": 3, "dance_core_refresh_every": 2},
            id="evidence of coming rounds",
        ),
    ],
)
def test_a_full_disk_costs_a_client_its_round_and_nothing_else(federation, disk, keys):
    """In round 2; the reference is a run in which the client does not answer there, for another
    reason.
    """
    replies = []
    # A state fits into a page, packs do not.
    disk.pages = int(keys == {"dance_text_refresh_every": 1})

    def fill(kind, asked, reply):
        if kind != "train" or asked["server-round"] != 2:
            return
        if reply is None:
            disk.take()
        else:
            replies.append(reply)
            assert drafts(disk.folder) == []
            disk.give()

    def fail(kind, asked, reply):
        if kind == "train" and asked["server-round"] == 2:
            raise RuntimeError("out of luck")

    result, store = federation(disk.folder, fill, **keys)
    reference, expected = federation(disk.folder, fail, **keys)
    (reply,) = replies
    reason = reply.error.reason
    assert len(reason.splitlines()) == 1 and reason.startswith(
        f"{disk.folder / 'client-1'}: expected room"
    )
    assert "MB free (No space left on device); make room there" in reason
    assert (
        taking_part(result) == taking_part(reference) == [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    )
    assert result["model_fingerprint"] == reference["model_fingerprint"]
    assert state(store) == state(expected)
    assert [client["client"] for client in result["clients"]] == [0, 1, 2]
    assert drafts(disk.folder) == []
    for path in store.all_packs():
        Packs.load(path)


def test_a_disk_that_is_full_from_the_first_round_on_starts_afresh_later(federation, disk):
    def fill(kind, asked, reply):
        if reply is None and kind == "train" and asked["server-round"] == 1:
            disk.take()
        if reply is None and kind == "train" and asked["server-round"] == 3:
            disk.give()

    result, store = federation(disk.folder, fill)
    assert taking_part(result) == [[0, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    assert state(store)["round"] == 4 and drafts(disk.folder) == []


def test_a_full_disk_at_the_end_leaves_the_others_their_numbers(federation, disk):
    def fill(kind, asked, reply):
        if reply is None and asked.get("final"):
            disk.take()

    result, store = federation(disk.folder, fill)
    assert taking_part(result) == [[0, 1, 2]] * 4
    assert [client["client"] for client in result["clients"]] == [0, 2]
    assert not store.final_path.exists() and drafts(disk.folder) == []


def test_under_masks_the_others_sum_goes_on_without_the_full_disk(federation, disk):
    def fill(kind, asked, reply):
        if asked.get("server-round") == 2 and not asked.get("final"):
            disk.take() if reply is None else disk.give()

    keys = {"privacy_secure_aggregation": True, "privacy_threshold": 0.6, "min_valid_replies": 0}
    keys["dance_text_refresh_every"] = 1
    # Of three clients none may be missing.
    result, store = federation(disk.folder, fill, clients=4, **keys)
    assert len(result["history"]) == 4 and state(store)["round"] == 4
    assert not store.round_path(2).exists() and store.round_path(3).exists()
    assert drafts(disk.folder) == []


def test_a_disk_that_turns_read_only_costs_a_round(federation, mounted):
    replies = []

    def close(kind, asked, reply):
        if kind != "train" or asked["server-round"] != 2:
            return
        mode = "remount,ro" if reply is None else "remount,rw"
        subprocess.run(["mount", "-o", mode, mounted], check=True)
        if reply is not None:
            replies.append(reply)

    result, _ = federation(mounted, close)
    assert taking_part(result) == [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    assert (
        "'Read-only file system'; change its owner to the SuperNode's user"
        in replies[0].error.reason
    )
    assert drafts(mounted) == []


@pytest.mark.parametrize("pages", [3, 8, 12])
def test_a_full_disk_of_the_server_is_one_line_and_the_run_is_resumed(
    mounted, dance, tmp_path, run_config, cli, pages
):
    """Whatever file finds no room: a checkpoint, the history, the model or the result."""
    disk, folder = Mounted(mounted), mounted / "run"
    disk.pages = pages
    disk.take()
    (tmp_path / "keys.toml").write_text(to_toml(run_config(rounds=3, out=str(folder))))
    done = cli("run", "--config", tmp_path / "keys.toml")
    assert done.code == 2 and f"error: {folder}" in done.err[-1]
    assert "expected room to write" in done.err[-1]
    assert drafts(folder) == []
    disk.give()
    kept = any(folder.glob("checkpoint*"))
    words = ["--resume", folder] if kept else ["--config", tmp_path / "keys.toml"]
    advice = f"resume with: dance-flwr run --resume {folder}"
    assert done.err[-1].endswith(advice) == kept != ("same command again" in done.err[-1])
    assert cli("run", *words).code == 0
    assert read_result(folder)["test_accuracy"] is not None
