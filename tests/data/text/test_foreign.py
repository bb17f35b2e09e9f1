"""Foreign text: how many chunks, whose, and that nothing but their order and place changes."""

import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.data.text.bank_slice import BankSlice
from dance_flwr.data.text.foreign import mix, mixed_texts
from dance_flwr.errors import DataError


def made_up(counts: list[int], seed: int = 0) -> tuple[list[str], BankSlice]:
    """Texts of `counts` chunks each, every chunk with a word of its own, and their slice.

    Spans leave out what a limit on chunks cut off, and the text of a first chunk may be empty.
    """
    rng = np.random.default_rng(seed)
    texts, spans = [], []
    for node, count in enumerate(counts):
        text = ""
        for chunk in range(count):
            word = f"n{node}c{chunk}é" + "x" * int(rng.integers(0, 5))
            spans.append((len(text), len(text) + len(word)))
            text += word + " "
        texts.append(text + "never encoded")
    rows = sum(counts)
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    part = BankSlice(
        rng.standard_normal((rows, 3)).astype(np.float16),
        np.array(spans, np.int32),
        rng.integers(1, 16, rows).astype(np.int32),
        ptr,
    )
    return texts, part


def oracle(ptr: np.ndarray, ratio: float, drawn: list[list[int]]) -> list[tuple[list, list]]:
    """Own and foreign rows of each node, chunk by chunk, given the nodes that it draws."""
    found = []
    for node, (first, end) in enumerate(pairwise(ptr.tolist())):
        wanted = max(1, round((end - first) * (ratio / (1 - ratio))))
        taken: list[int] = []
        for other in drawn[node]:
            assert other != node
            taken += range(ptr[other], ptr[other + 1])
        found.append((list(range(first, end)), taken[:wanted]))
    return found


def draws(counts: np.ndarray, ratio: float, seed: int) -> list[list[int]]:
    """The nodes that `mix` draws: one integer per foreign chunk, shifted past the node itself."""
    wanted = [max(1, round(c * (ratio / (1 - ratio)))) for c in counts.tolist()]
    generator = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"foreign-text")]))
    flat = iter(generator.integers(0, len(counts) - 1, sum(wanted)).tolist())
    numbers = [[next(flat) for _ in range(count)] for count in wanted]
    return [[d + (d >= node) for d in row] for node, row in enumerate(numbers)]


CASES = {
    "counts": st.lists(st.integers(1, 8), min_size=2, max_size=20),
    "ratio": st.sampled_from([0.1, 0.25, 0.5, 2 / 3, 0.75, 0.9]),
    "seed": st.integers(0, 5),
}


@given(**CASES)
def test_the_mixture_is_that_of_the_loop_in_another_order(counts, ratio, seed):
    _, part = made_up(counts)
    found = mix(part.ptr, ratio, seed)
    expected = oracle(part.ptr, ratio, draws(np.diff(part.ptr), ratio, seed))
    for node, (a, b) in enumerate(pairwise(found.ptr.tolist())):
        own, foreign = expected[node]
        assert sorted(found.rows[a:b][~found.foreign[a:b]].tolist()) == own
        assert sorted(found.rows[a:b][found.foreign[a:b]].tolist()) == sorted(foreign)


@given(**CASES)
def test_spans_reproduce_the_chunks_and_everything_else_is_copied(counts, ratio, seed):
    texts, part = made_up(counts)
    mixture = mix(part.ptr, ratio, seed)
    nodes = np.flatnonzero(np.random.default_rng(seed).random(len(counts)) < 0.6)
    mixed = mixed_texts(texts, part, mixture, nodes)
    owner = np.repeat(np.arange(len(counts)), counts)
    assert len(mixed.texts) == len(nodes) and mixed.part.ptr.tolist()[0] == 0
    for place, node in enumerate(nodes):
        rows = mixture.rows[mixture.ptr[node] : mixture.ptr[node + 1]]
        here = slice(mixed.part.ptr[place], mixed.part.ptr[place + 1])
        spans = mixed.part.spans[here].tolist()
        chunks = [texts[owner[row]][slice(*part.spans[row])] for row in rows]
        assert [mixed.texts[place][a:b] for a, b in spans] == chunks
        assert mixed.texts[place] == "\n\n".join(chunks)
        assert np.array_equal(mixed.part.embeddings[here], part.embeddings[rows])
        assert np.array_equal(mixed.part.tokens[here], part.tokens[rows])
        assert np.array_equal(mixed.foreign[here], owner[rows] != node)
    kinds = [getattr(mixed.part, name).dtype for name in ("embeddings", "spans", "tokens", "ptr")]
    assert kinds == [np.float16, np.int32, np.int32, np.int64]


def test_the_chunks_of_a_node_are_shuffled():
    _, part = made_up([8] * 50)
    mixture = mix(part.ptr, 0.5, 0)
    place = np.arange(16)
    foreign = mixture.foreign.reshape(50, 16)
    assert np.mean([place[row].mean() for row in foreign]) == pytest.approx(7.5, abs=1)


def test_a_single_node_has_no_others():
    with pytest.raises(DataError, match="expected at least two nodes with a client, found 1"):
        mix(np.array([0, 3]), 0.5, 0)
