"""What a client keeps between rounds: repeated, resumed and lost rounds, and no more."""

import logging
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support.killing import Killed
from support.models import equal

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import STATE
from dance_flwr.dance import state as module
from dance_flwr.dance.plan import Condensation, Plan
from dance_flwr.dance.state import CONDENSATION, PLAN, STATIC, RunFolder
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.dance.client import Dance

CPU = torch.device("cpu")


def train(data, config, round_, run="run"):
    """Train round `round_` from the first model; return the upload."""
    model = initial_model(shape_of(data.text_dim, 3, config), config)
    with torch.random.fork_rng():
        torch.manual_seed(round_)
        Dance().train(model, data, config, RoundInfo(run, round_, "m"))
    return model.state_dict()


def names(data, run="run"):
    folder = RunFolder(data.folder, run).folder
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def read(folder, state):
    """The files of a state: its condensation, and its plan or None."""
    files = (CONDENSATION, state.core_round, Condensation), (PLAN, state.plan_round, Plan)
    return [folder.read(*file, CPU) for file in files]


def flip(path):
    """A stretch that is longer than what no checksum covers."""
    content, middle = bytearray(path.read_bytes()), path.stat().st_size // 2
    for place in range(middle, middle + 200):
        content[place] ^= 1
    path.write_bytes(content)
    # Where the clock of a file system is coarse, the file may have been written in the same tick.
    os.utime(path, ns=(time.time_ns(),) * 2)


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


KEYS = {"dance_core_refresh_every": 3, "dance_batch_nodes": 4, "rounds": 9}


@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_a_repeated_round_repeats_its_upload(data, run_config, every):
    """In rounds that condense (1 and 4) and in rounds that do not; the next one goes on from it."""
    config = run_config(dance_text_refresh_every=every, **KEYS)
    reference = [train(data, config, round_, "other") for round_ in range(1, 6)]
    for round_ in range(1, 6):
        for _ in range(1 + round_ % 3):
            assert equal(train(data, config, round_), reference[round_ - 1])


@pytest.mark.parametrize("name", ["state.npz", "plan-00001.npz"])
@pytest.mark.parametrize("change", [flip, Path.unlink, None])
def test_a_change_between_rounds_of_a_process_is_noticed(data, run_config, caplog, name, change):
    """A file that is damaged, removed or replaced by that of another process, here of round 1."""
    config = run_config(**KEYS | {"dance_core_refresh_every": 10, "dance_text_refresh_every": 10})
    folder, saved = RunFolder(data.folder, "run", data.cached), data.folder / "saved.npz"
    train(data, config, 1)
    shutil.copy(folder.folder / name, saved)
    for round_ in (2, 3):
        train(data, config, round_)
    assert (folder.load(CPU).round, folder.load(CPU).core_round) == (3, 1)
    change(folder.folder / name) if change else saved.replace(folder.folder / name)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        uploads = train(data, config, 4), train(ClientData(data.folder, CPU), config, 4)
    state = folder.load(CPU)
    if change:
        # A state that is missing, unlike a damaged one, is the one before it.
        earlier = (change, name) == (Path.unlink, STATE)
        assert ("the core is selected again" in caplog.text) != earlier
        assert (state.turn, state.core_round) == ((3, 1) if earlier else (1, 4))
    else:
        assert not caplog.records and state.turn == (2 if name == STATE else 4)
    assert equal(*uploads), "what a process remembers changes nothing"


def test_condensations_that_no_state_needs_are_removed(data, run_config):
    """The state and the one before it need one each; a repeated round needs both."""
    config = run_config(**KEYS)
    seen = []
    for round_ in range(1, 9):
        train(data, config, round_)
        numbers = [name[13:18] for name in names(data) if name.startswith("condensation-")]
        seen.append([int(number) for number in numbers])
    assert seen == [[1], [1], [1], [1, 4], [1, 4], [1, 4], [4, 7], [4, 7]]


@pytest.mark.parametrize("name", ["condensation", "plan", "everything"])
def test_a_lost_state_is_a_fresh_one_with_a_warning(data, run_config, caplog, name):
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    with caplog.at_level(logging.WARNING, logger="flwr"):
        for round_ in (1, 2):
            train(data, config, round_)
        assert not caplog.records
        if name != "everything":
            (folder.folder / f"{name}-00001.npz").unlink()
        else:
            shutil.rmtree(folder.folder)
        train(data, config, 3)
    assert ["the core is selected again" in record.getMessage() for record in caplog.records] == [
        True
    ]
    state = folder.load(CPU)
    assert (state.core_round, state.turn, state.round) == (3, 1, 3)


LACKING = {"queue_ptr", "hop1_ptr", "numbers"}


def drop_an_array(path):
    """A whole file, as an earlier version may have written it."""
    with np.load(path) as arrays:
        kept = {name: arrays[name] for name in arrays.files if name not in LACKING}
    np.savez(path, **kept)


@pytest.mark.parametrize("damage", [flip, halve, drop_an_array])
@pytest.mark.parametrize("every", [10, 2])
@pytest.mark.parametrize("name", ["condensation-00001.npz", "plan-00001.npz", STATE])
def test_a_damaged_file_of_the_state_is_a_lost_one(data, run_config, caplog, name, damage, every):
    """Noticed in the round that reads it, which is round 3 if evidence is selected there."""
    keys = KEYS | {"dance_core_refresh_every": 10, "dance_text_refresh_every": every}
    config, folder = run_config(**keys), RunFolder(data.folder, "run")
    for round_ in (1, 2):
        train(data, config, round_)
    damage(folder.folder / name)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        train(data, config, 3)
    read = {"condensation-00001.npz": every == 2, "plan-00001.npz": every == 10, STATE: True}[name]
    assert ("the core is selected again" in caplog.text) == read
    assert folder.load(CPU).core_round == (3 if read else 1)


def test_a_state_of_another_release_is_a_lost_one(data, run_config):
    folder = RunFolder(data.folder, "run")
    train(data, run_config(**KEYS), 1)
    np.savez(folder.folder / STATE, core=np.zeros(1, np.int64), numbers=np.zeros(8, np.int64))
    assert folder.load(CPU).round == 0


@pytest.mark.parametrize("damage", [flip, halve, drop_an_array])
def test_damaged_evidence_of_all_nodes_is_selected_again(data, run_config, caplog, damage):
    config = run_config(**KEYS, dance_text_refresh_every=0)
    for round_ in (1, 2):
        train(data, config, round_)
    folder = RunFolder(data.folder, "run")
    damage(folder.path(STATIC, 1))
    with caplog.at_level(logging.WARNING, logger="flwr"):
        train(data, config, 3)
    assert "evidence is selected again" in caplog.text
    state = folder.load(CPU)
    assert (state.core_round, state.text_round) == (1, 3)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_an_end_while_saving_leaves_the_state_before(data, run_config, monkeypatch, number):
    """Round 4 condenses: its condensation (0) or its state (3) is not written; it is repeated."""
    config = run_config(dance_evidence_keep="final", **KEYS)
    reference = [train(data, config, round_, "other") for round_ in range(1, 6)]
    for round_ in (1, 2, 3):
        train(data, config, round_)
    real, calls = module.write_npz, []

    def broken(path, arrays, **options):
        calls.append(path.name)
        if len(calls) > number:
            raise Killed
        real(path, arrays, **options)

    monkeypatch.setattr(module, "write_npz", broken)
    with pytest.raises(Killed):
        train(data, config, 4)
    files = [f"{name}-00004.npz" for name in ("condensation", "validation", "plan")]
    assert calls == [*files, STATE][: number + 1]
    monkeypatch.undo()
    assert RunFolder(data.folder, "run").load(CPU).round == 3
    for round_ in (4, 5):
        assert equal(train(data, config, round_), reference[round_ - 1])
