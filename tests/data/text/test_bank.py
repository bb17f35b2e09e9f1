import multiprocessing
import sqlite3
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from filelock import FileLock
from support.encoding import encode

from dance_flwr.data.text import bank as module
from dance_flwr.data.text.bank import TextBank, text_key
from dance_flwr.data.text.bank_slice import load_slice, read_meta, save_slice
from dance_flwr.data.text.encoder import DEFAULT_ENCODER, TextEncoder, resolve_encoder
from dance_flwr.errors import DataError, refusal

TEXTS = [
    f"Paper {i} studies graphs. It has {i} theorems. Its proofs are short. " * (1 + i % 3)
    for i in range(40)
] + [""]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder.from_spec(resolve_encoder(DEFAULT_ENCODER, "float32"))


@pytest.fixture
def count(encoder, monkeypatch):
    """Number of chunks that go through the encoder."""
    seen = []
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda chunks: seen.extend(chunks) or encode(chunks))
    monkeypatch.setattr(module, "BLOCK_CHUNKS", 16)
    return seen


@pytest.fixture
def bank(tmp_path, encoder, count):
    return TextBank(tmp_path, encoder, 24, 4)


def reopened(bank, encoder):
    return TextBank(bank.folder.parent.parent, encoder, 24, 4)


def test_second_ensure_encodes_nothing(bank, encoder, count):
    first = bank.ensure(TEXTS, progress=False)
    assert (
        first.texts_total == first.texts_encoded == 41 and first.chunks_encoded == len(count) > 41
    )
    again = reopened(bank, encoder).ensure(TEXTS[::-1] + TEXTS[:3], progress=False)
    assert (again.texts_total, again.texts_encoded, again.chunks_encoded) == (44, 0, 0)
    assert len(count) == first.chunks_encoded


def test_gather_equals_direct_encoding(bank, encoder):
    bank.ensure(TEXTS, progress=False)
    wanted = [TEXTS[7], TEXTS[40], TEXTS[2], TEXTS[7]]
    part = bank.gather(wanted)
    chunks = [
        wanted[i][a:b] for i in range(4) for a, b in part.spans[part.ptr[i] : part.ptr[i + 1]]
    ]
    assert chunks[0].startswith("Paper 7") and part.embeddings.shape == (len(chunks), 384)
    np.testing.assert_allclose(part.embeddings, encoder.encode(chunks), atol=2e-4)
    lengths = [
        len(encoder.tokenizer(chunk, add_special_tokens=False)["input_ids"]) for chunk in chunks
    ]
    assert part.tokens.tolist() == lengths
    assert (part.embeddings.dtype, part.spans.dtype, part.tokens.dtype, part.ptr.dtype) == (
        "f2",
        "i4",
        "i4",
        "i8",
    )
    assert bank.gather([]).embeddings.shape == (0, 384)


def test_a_damaged_bank_is_refused(bank, encoder):
    bank.ensure(TEXTS, progress=False)
    file = bank.folder / "bank.sqlite"
    content = file.read_bytes()
    for damaged in (b"\xff" * 3000 + content[3000:], content[:-5000]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="expected an undamaged bank, found"):
            reopened(bank, encoder).gather(TEXTS)


def test_a_full_disk_is_no_damage(bank, monkeypatch):
    limited = sqlite3.connect

    def connect(path, **options):
        database = limited(path, **options)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(OSError, match="full") as full:
        bank.ensure(TEXTS, progress=False)
    assert refusal(full.value).startswith(str(bank.folder / "bank.sqlite"))


def test_a_bank_is_written_with_its_first_text(bank):
    assert not bank.folder.exists()
    bank.ensure(TEXTS[:1], progress=False)
    assert [path.name for path in bank.folder.iterdir()] == ["bank.sqlite"]
    assert bank.meta["fingerprint"].startswith(bank.folder.name)


def test_a_write_waits_for_the_lock_and_says_so(bank, encoder, capsys):
    other = reopened(bank, encoder)
    with FileLock(bank.folder.with_suffix(".lock")):
        thread = threading.Thread(target=other.ensure, args=(TEXTS[:2], False))
        thread.start()
        thread.join(3)
        assert thread.is_alive() and not (bank.folder / "bank.sqlite").exists()
    thread.join(20)
    assert "waiting: another process is encoding" in capsys.readouterr().err
    assert len(bank.gather(TEXTS[:2]).ptr) == 3


def keys_of(bank):
    """Keys of the texts that a bank has."""
    with closing(sqlite3.connect(bank.folder / "bank.sqlite")) as database:
        return {key for (key,) in database.execute("SELECT key FROM texts")}


MANY = [f"Paper {i} studies graphs. It has {i} theorems. Its proofs are short." for i in range(120)]
# A server of forks, whose processes begin with the libraries loaded.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["sentence_transformers", "support.encoding"])


@pytest.fixture
def encode_in_processes(tmp_path):
    """Start one process per range of MANY, let all of them go at once, and return them."""
    started, barriers = [], []

    def start(*ranges):
        together = PROCESSES.Barrier(len(ranges))
        barriers.append(together)  # one that is collected is gone before a process opens it
        for number, (first, last) in enumerate(ranges):
            arguments = (tmp_path, MANY[first:last], together, tmp_path / f"written-{number}")
            started.append(PROCESSES.Process(target=encode, args=arguments))
            started[-1].start()
        return started

    yield start
    for process in started:
        process.kill()
        process.join()


def check_whole(bank, encoder, number):
    """The bank holds these texts once each, and the right embeddings."""
    assert keys_of(bank) == {text_key(text) for text in MANY[:number]}
    part = bank.gather(MANY[:number])
    for i in (0, number // 2, number - 1):
        rows = slice(part.ptr[i], part.ptr[i + 1])
        chunks = [MANY[i][a:b] for a, b in part.spans[rows]]
        np.testing.assert_allclose(part.embeddings[rows], encoder.encode(chunks), atol=2e-3)


def test_two_processes_encode_no_text_twice(bank, encoder, encode_in_processes, tmp_path):
    """Half of the texts of each are the other's too."""
    for process in encode_in_processes((0, 60), (30, 90)):
        process.join()
        assert process.exitcode == 0
    written = [int((tmp_path / f"written-{number}").read_text()) for number in (0, 1)]
    assert sorted(written) == [30, 60]
    check_whole(bank, encoder, 90)


def test_a_killed_process_leaves_a_whole_bank_to_the_other(bank, encoder, encode_in_processes):
    killed, other = encode_in_processes((0, 60), (40, 120))
    while len(bank._missing({text_key(text): text for text in MANY})) > 105:
        time.sleep(0.005)
    killed.kill()
    other.join()
    assert other.exitcode == 0
    kept = keys_of(bank)
    assert {text_key(text) for text in MANY[40:]} <= kept
    done = bank.ensure(MANY, progress=False)
    assert done.texts_encoded == 120 - len(kept)
    check_whole(bank, encoder, 120)


def test_slice_round_trip_is_memory_mapped(bank, tmp_path):
    bank.ensure(TEXTS, progress=False)
    for wanted in (TEXTS[:9], TEXTS[5:8]):  # the second replaces the first
        part = bank.gather(wanted)
        save_slice(tmp_path / "slice", part, bank.meta)
        found = load_slice(tmp_path / "slice")
        assert not (found.embeddings.flags.owndata or found.embeddings.flags.writeable)
        for left, right in zip(vars(part).values(), vars(found).values(), strict=True):
            np.testing.assert_array_equal(left, right)
    names = [
        "bank.json",
        "chunk_embeddings.npy",
        "chunk_ptr.npy",
        "chunk_spans.npy",
        "chunk_tokens.npy",
    ]
    assert sorted(path.name for path in (tmp_path / "slice").iterdir()) == names
    assert bank.meta.items() <= read_meta(tmp_path / "slice").items()
