"""The cache on disk: damaged files, files of others, writers at the same time."""

import os

import pytest
from support.prompts import GOOD, Told, is_cached, prompt, session

from dance_flwr.llm.model import Completion
from dance_flwr.llm.session import Cache, question_sha256

KEPT = Completion(GOOD, 40, 4)


@pytest.fixture
def kept(tmp_path):
    """A cache with one reply, its key and its file."""
    cache, key = Cache(tmp_path), question_sha256("m", prompt(), 32, 0)
    cache.keep(key, KEPT)
    (file,) = (tmp_path / "llm").rglob("*.json")
    return cache, key, file


@pytest.mark.parametrize("place", range(0, 260, 13))
def test_a_bit_that_flips_is_noticed(kept, place):
    cache, key, file = kept
    data = bytearray(file.read_bytes())
    data[place % len(data)] ^= 1
    file.write_bytes(bytes(data))
    found = cache.find(key)
    assert found is None or found == KEPT  # white space may change


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b"{}"),
        b'{"text": null, "prompt_tokens": 1, "completion_tokens": 1, "finish": "stop"}',
        b'{"text": {"a": 1}, "prompt_tokens": "x", "completion_tokens": [], "finish": 3}',
    ],
)
def test_a_damaged_or_hostile_file_is_no_reply(kept, content):
    cache, key, file = kept
    for text in (content, content.replace(b"}", b', "sha256": "00"}')):
        file.write_bytes(text)
        assert cache.find(key) is None


def test_a_reply_to_another_question_is_no_reply(kept):
    cache, key, file = kept
    other = question_sha256("m", prompt("another"), 32, 0)
    target = file.parents[1] / other[:2] / f"{other}.json"
    target.parent.mkdir(exist_ok=True)
    os.link(file, target)
    assert cache.find(other) is None and cache.find(key) == KEPT


def test_a_file_without_end_or_a_folder_is_not_read(kept):
    cache, key, file = kept
    with file.open("r+b") as stream:
        stream.truncate(10**10)
    assert cache.find(key) is None
    file.unlink()
    file.mkdir()
    assert cache.find(key) is None


def test_a_damaged_file_is_asked_again_and_replaced(tmp_path):
    model = Told(GOOD)
    with session(model, tmp_path) as asking:
        asking.ask(prompt())
        (file,) = (tmp_path / "llm").rglob("*.json")
        file.write_text('{"text": "{}"}', encoding="utf-8")
        assert not is_cached(asking, prompt())
        assert is_cached(asking, prompt())
    assert len(model.asked) == 2


def test_a_reply_that_no_longer_fits_is_not_believed(tmp_path):
    """A file whose hash is right, but whose reply is not what the schema allows."""
    model = Told(GOOD)
    with session(model, tmp_path) as asking:
        key = question_sha256(model.name, prompt(), 32, 0)
        Cache(tmp_path).keep(key, Completion('{"score": 99}', 1, 1))
        assert asking.ask(prompt()) == {"score": 3}
