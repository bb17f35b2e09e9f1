"""What a client keeps between rounds: repeated, resumed and lost rounds, and no more."""

import logging
import shutil

import numpy as np
import pytest
import torch
from support.killing import Killed

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import PREVIOUS, STATE
from dance_flwr.dance import state as module
from dance_flwr.dance.algorithm import train_round
from dance_flwr.dance.nodes import Queue
from dance_flwr.dance.state import ClientState, RunFolder, due
from dance_flwr.federation.client.client import initial_model, shape_of

CPU = torch.device("cpu")
FRESH = pytest.mark.parametrize("forget", [True, False], ids=["new process", "same process"])


@pytest.fixture(autouse=True)
def nothing_in_memory():
    RunFolder._live.clear()


@pytest.fixture
def data(dance, tmp_path):
    source = dance.partition / "client-0"
    shutil.copytree(source, tmp_path / "client-0", ignore=shutil.ignore_patterns("runs"))
    return ClientData(tmp_path / "client-0", CPU)


def train(data, config, round_, run="run"):
    """Train round `round_` from the first model; return the upload."""
    model = initial_model(shape_of(data.text_dim, 3, config), config)
    with torch.random.fork_rng():
        torch.manual_seed(round_)
        train_round(model, data, RunFolder(data.folder, run), config, round_=round_, model_id="m")
    return model.state_dict()


def equal(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


def names(data, run="run"):
    folder = RunFolder(data.folder, run).folder
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def lists(ahead):
    """What a state selected ahead, as lists."""
    arrays = {name: array.tolist() for name, array in ahead.arrays().items()}
    return arrays, [[part.tolist() for part in edges] for edges in ahead.edges]


def content(state):
    """The numbers of a state, as lists."""
    queue = [getattr(state.queue, name).tolist() for name in ("nodes", "ptr", "quotas")]
    return {
        "queue": queue,
        "core": state.core.tolist(),
        "ahead": state.ahead and lists(state.ahead),
        "numbers": (state.turn, state.core_round, state.text_round, state.round),
        "nodes": (state.times_selected.tolist(), state.difficulty.tolist()),
    }


KEYS = {"dance_core_refresh_every": 3, "dance_batch_nodes": 4, "rounds": 9}


@FRESH
@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_a_repeated_round_repeats_its_upload(data, run_config, forget, every):
    """In rounds that condense (1 and 4) and in rounds that do not; the next one goes on from it."""
    config = run_config(dance_text_refresh_every=every, **KEYS)
    reference = [train(data, config, round_, "other") for round_ in range(1, 6)]
    for round_ in range(1, 6):
        for _ in range(1 + round_ % 3):
            if forget:
                RunFolder._live.clear()
            assert equal(train(data, config, round_), reference[round_ - 1])


@FRESH
@pytest.mark.parametrize("every", [0, 1, 2, 3])
def test_a_state_is_what_was_saved(data, run_config, forget, every):
    """What was selected ahead too; evidence of a single round is selected again."""
    config = run_config(**KEYS, dance_text_refresh_every=every)
    folder = RunFolder(data.folder, "run")
    for round_ in (1, 2, 3):
        train(data, config, round_)
    live = folder.load(data.num_nodes, CPU)
    kept = content(live)
    assert (live.ahead is None) == (every == 1)
    if forget:
        RunFolder._live.clear()
    assert content(RunFolder(data.folder, "run").load(data.num_nodes, CPU)) == kept
    text = [1, 3, 3, 1][every]
    assert kept["numbers"] == (3, 1, text, 3)
    assert content(folder.load(data.num_nodes, CPU, before=3))["numbers"] == (
        2,
        1,
        [1, 2, 1, 1][every],
        2,
    )
    assert folder.load(data.num_nodes, CPU, before=1).round == 0


def test_a_file_that_another_process_replaced_is_read_again(data, run_config):
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    for round_ in (1, 2):
        train(data, config, round_)
    shutil.copy(folder.folder / PREVIOUS, folder.folder / "copy")
    (folder.folder / "copy").replace(folder.folder / STATE)
    assert folder.load(data.num_nodes, CPU).round == 1


def test_what_has_an_entry_per_node_is_written_at_a_condensation_only(data, run_config):
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    train(data, config, 1)
    survey = folder.folder / "survey-00001.npz"
    stamp = survey.stat().st_mtime_ns, survey.stat().st_ino
    for round_ in (2, 3):
        train(data, config, round_)
        assert (survey.stat().st_mtime_ns, survey.stat().st_ino) == stamp
    with np.load(folder.folder / STATE) as file:
        assert max(file[name].size for name in file.files) < data.num_nodes
    with np.load(survey) as file:
        assert file["difficulty"].shape == file["times_selected"].shape == (data.num_nodes,)


def test_surveys_that_no_state_needs_are_removed(data, run_config):
    """The state and the one before it need one survey each; a repeated round needs both."""
    config = run_config(**KEYS)
    seen = []
    for round_ in range(1, 9):
        train(data, config, round_)
        seen.append([int(name[7:12]) for name in names(data) if name.startswith("survey-")])
    assert seen == [[1], [1], [1], [1, 4], [1, 4], [1, 4], [4, 7], [4, 7]]


@FRESH
@pytest.mark.parametrize("name", ["survey", "ahead", "everything"])
def test_a_lost_state_is_a_fresh_one_with_a_warning(data, run_config, caplog, name, forget):
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    with caplog.at_level(logging.WARNING, logger="flwr"):
        for round_ in (1, 2):
            train(data, config, round_)
        assert not caplog.records
        if name != "everything":
            (folder.folder / f"{name}-00001.npz").unlink()
        else:
            shutil.rmtree(folder.folder)
        RunFolder._live.clear()
        train(data, config, 3)
    assert ["the core is selected again" in record.getMessage() for record in caplog.records] == [
        True
    ]
    state = folder.load(data.num_nodes, CPU)
    assert (state.core_round, state.turn, state.round) == (3, 1, 3)


def flip(path):
    """A stretch that is longer than what no checksum covers."""
    content, middle = bytearray(path.read_bytes()), path.stat().st_size // 2
    for place in range(middle, middle + 200):
        content[place] ^= 1
    path.write_bytes(content)


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop_an_array(path):
    """A whole file, as an earlier version may have written it."""
    with np.load(path) as arrays:
        kept = {name: arrays[name] for name in arrays.files if name not in ("ptr", "hop1_ptr")}
    np.savez(path, **kept)


@pytest.mark.parametrize("damage", [flip, halve, drop_an_array])
@pytest.mark.parametrize("name", ["survey", "ahead"])
def test_a_damaged_file_of_the_state_is_a_lost_one(data, run_config, caplog, name, damage):
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    for round_ in (1, 2):
        train(data, config, round_)
    damage(folder.folder / f"{name}-00001.npz")
    RunFolder._live.clear()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        train(data, config, 3)
    assert "the core is selected again" in caplog.text
    assert folder.load(data.num_nodes, CPU).core_round == 3


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_end_while_saving_leaves_the_state_before(data, run_config, monkeypatch, number):
    """Round 4 condenses: its survey (0) or its state (1) is not written; it is then repeated."""
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
    assert calls == ["survey-00004.npz", "ahead-00004.npz", STATE][: number + 1]
    monkeypatch.undo()
    assert RunFolder(data.folder, "run").load(data.num_nodes, CPU).round == 3
    for round_ in (4, 5):
        assert equal(train(data, config, round_), reference[round_ - 1])


def test_cores_of_a_run_are_those_of_its_queue(data, run_config):
    """Batches move on in turn, and the next condensation knows how often each node was in one."""
    config, folder = run_config(**KEYS), RunFolder(data.folder, "run")
    counted = torch.zeros(data.num_nodes, dtype=torch.int64)
    for round_ in range(1, 5):
        train(data, config, round_)
        state = folder.load(data.num_nodes, CPU)
        assert state.core.numel() == 4 and state.turn == (round_ - 1) % 3 + 1
        assert torch.equal(state.core, state.queue.core(state.turn - 1))
        if round_ < 4:
            counted[state.core] += 1
    assert torch.equal(state.times_selected, counted)


def test_at_most_so_many_states_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_LIVE", 2)
    for number in range(4):
        state = ClientState(torch.zeros(3, dtype=torch.int64), torch.zeros(3), core_round=1)
        state.queue = Queue(torch.arange(3), torch.tensor([0, 3]), torch.tensor([1]))
        state.core = torch.tensor([0])
        RunFolder(tmp_path / str(number), "run").save(state, 1)
    assert len(RunFolder._live) == 2
    assert all(RunFolder(tmp_path / str(i), "run").load(3, CPU).round == 1 for i in range(4))


@pytest.mark.parametrize(
    ("every", "rounds"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 4, 7]), (0, [1]), (99, [1])]
)
def test_when_a_refresh_is_due(every, rounds):
    last, found = 0, []
    for round_ in range(1, 8):
        if due(last, every, round_):
            found.append(round_)
            last = round_
    assert found == rounds
    assert due(1, 3, 5) and not due(4, 3, 6)  # a missed refresh is made up for
