"""Sentence-aware chunks with exact character offsets, packed greedily up to a token limit."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.terminal import bar

# Part of every bank fingerprint: increase it whenever the spans of a text would change.
CHUNKER_VERSION = 1

# Offsets of all texts at once would take more memory than the texts.
_TOKENISE_BATCH = 512
# Of a long text the beginning is tokenised that certainly gives all chunks: words of most languages
# have four to six characters a token.
_CHARACTERS_PER_TOKEN, _LONGEST_WORD = 16, 256
# Possessive, and tried once per run of marks: without a space behind it, a run of n marks would
# otherwise be read n^2 / 2 times.
_SENTENCE_END = re.compile(
    # End punctuation, closing quotes, white space.
    r"""(?<![.!?\u2026])[.!?\u2026]++["'\u2019\u201d)\]]*+(?=\s)"""
    r"""|[\u3002\uff01\uff1f]++["'\u2019\u201d\u300d)\]]*+"""  # CJK end marks need no space
    r"""|\n\s*\n"""  # blank line
    r"""|\n(?=[^\S\n]*(?:[-*\u2022\u2013]|\(?\d{1,3}[.)]|\(?[a-z]\))\s)"""  # next item of a list
)
_ABBREVIATION = re.compile(
    r"e\.g|eg|i\.e|ie|al|figs?|cf|eqs?|secs?|refs?|tab|thm|prop|vs|dr|mr|mrs|ms|prof|st|vol|pp|eds?"
    r"|resp|approx|ca|ch|viz|incl|dept|univ",
    re.IGNORECASE,
)
_LAST_WORD = 16  # no abbreviation above is longer than this many characters
_OPENING_MARKS = "([{\"'\u2018\u201c"
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Chunks:
    """Chunks of n texts; the chunks of text i are the rows ptr[i]:ptr[i+1].

    Attributes
    ----------
    spans : int32 [R, 2], character start and end in the text; `text[start:end]` is the chunk
    tokens : int32 [R], length in tokens of the encoder's tokenizer, without special tokens
    ptr : int64 [n+1], first row of each text
    """

    spans: NDArray[np.int32]
    tokens: NDArray[np.int32]
    ptr: NDArray[np.int64]


def chunk_texts(texts: Sequence[str], tokenizer: Any, max_tokens: int, max_chunks: int) -> Chunks:
    """Split texts into sentences and pack consecutive sentences greedily into chunks.

    A sentence longer than `max_tokens` is cut at the last white space that fits, or between two
    tokens if there is none. Tokens are counted in the whole text; the piece after a cut inside a
    word may be tokenised differently on its own. The result is deterministic.

    Parameters
    ----------
    texts : n raw texts; an empty or all-white text yields one chunk with span (0, 0) and 0 tokens
    tokenizer : fast (Rust) tokenizer of the encoder, with offsets
    max_tokens : maximum number of tokens per chunk, exceeded only by a single character that has
        more tokens
    max_chunks : maximum number of chunks per text; the rest of the text is omitted

    Returns
    -------
    Chunks : at least one and at most `max_chunks` chunks for every text, in reading order
    """
    rows: list[tuple[int, int, int]] = []
    ptr = [0]
    # Two chunks more than are kept: the text behind them changes none of those.
    needed, limit = max_chunks + 2, _CHARACTERS_PER_TOKEN * max_tokens * (max_chunks + 2)
    with bar("texts", len(texts), "texts split") as shown:
        for first in range(0, len(texts), _TOKENISE_BATCH):
            whole = texts[first : first + _TOKENISE_BATCH]
            batch = [replace_surrogates(_beginning(text, limit)) for text in whole]
            tokens = _token_starts(batch, tokenizer)
            for full, text, starts in zip(whole, batch, tokens, strict=True):
                chunks, size = _chunk_one(text, starts, max_tokens), limit
                while len(chunks) < needed and len(text) < len(full):
                    size *= 8
                    text = replace_surrogates(_beginning(full, size))
                    chunks = _chunk_one(text, _token_starts([text], tokenizer)[0], max_tokens)
                rows.extend(chunks[:max_chunks])
                ptr.append(len(rows))
            shown.move(first + len(whole))
    table = np.array(rows, np.int32).reshape(-1, 3)
    return Chunks(
        spans=np.ascontiguousarray(table[:, :2]),
        tokens=np.ascontiguousarray(table[:, 2]),
        ptr=np.array(ptr, np.int64),
    )


def _beginning(text: str, limit: int) -> str:
    """Return the text up to the last space or line break before `limit`; whole where none is near.

    Tokenizers split there first, so that the tokens in front stay the same. Other white space, such
    as a vertical tab, they may remove, which joins the words around it.
    """
    if len(text) <= limit:
        return text
    gap = max(text.rfind(mark, limit - _LONGEST_WORD, limit) for mark in " \n\t")
    return text[: gap + 1] if gap > 0 else text


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate, which no tokenizer accepts, by one character."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def split_sentences(text: str) -> list[int]:
    """Return the ascending character positions [0, ..., len(text)] that bound the sentences.

    A sentence ends at end punctuation before white space, at a blank line or before a list item,
    but not after a common abbreviation or an initial.
    """
    ends = [
        match.end() for match in _SENTENCE_END.finditer(text) if not _is_abbreviation(text, match)
    ]
    return sorted({0, len(text), *ends})


def _is_abbreviation(text: str, match: re.Match[str]) -> bool:
    if match.group() != ".":  # "e.g.)" and "!" do end a sentence
        return False
    words = text[max(0, match.start() - _LAST_WORD) : match.start()].split()
    if not words or text[match.start() - 1].isspace():
        return False
    word = words[-1].lstrip(_OPENING_MARKS)
    return bool(_ABBREVIATION.fullmatch(word)) or (
        len(word.rpartition(".")[2]) == 1 and word[-1].isupper()
    )


def _token_starts(texts: list[str], tokenizer: Any) -> list[list[int]]:
    # Why its Rust part (decision 31): around it, lists that nobody reads take a third of the time.
    rust = tokenizer.backend_tokenizer
    rust.no_truncation()
    rust.no_padding()
    rows = rust.encode_batch(texts, add_special_tokens=False)
    return [sorted([start for start, _ in row.offsets]) for row in rows]


def _chunk_one(text: str, starts: list[int], max_tokens: int) -> list[tuple[int, int, int]]:
    """Return (start, end, tokens) of every chunk of one text; `starts` are token offsets."""
    cuts = [0]
    for begin, end in pairwise(split_sentences(text)):
        cuts.extend(_cut_sentence(text, starts, begin, end, max_tokens))
        cuts.append(end)
    chunks = []
    begin = first = 0  # character and token where the open chunk begins
    last = 0  # token where the open chunk ends so far
    for start, end in pairwise(cuts):
        stop = bisect_left(starts, end, last)
        if stop - first > max_tokens and start > begin:
            chunks.append(_trim(text, begin, start, last - first))
            begin, first = start, last
        last = stop
    chunks.append(_trim(text, begin, len(text), len(starts) - first))
    # White space is no chunk, but every text has one: what pools chunks expects it.
    return [chunk for chunk in chunks if chunk[1] > chunk[0]] or [(0, 0, 0)]


def _cut_sentence(text: str, starts: list[int], begin: int, end: int, max_tokens: int) -> list[int]:
    """Return the positions that cut text[begin:end] into pieces of at most `max_tokens` tokens."""
    cuts = []
    first, stop = bisect_left(starts, begin), bisect_left(starts, end)
    while stop - first > max_tokens:
        limit = starts[first + max_tokens]
        if limit <= begin:  # one character has several tokens: keep it whole
            limit = begin + 1
        begin = _last_gap(text, begin, limit)
        cuts.append(begin)
        first = bisect_left(starts, begin, first)
    return [cut for cut in cuts if cut < end]


def _last_gap(text: str, begin: int, limit: int) -> int:
    if text[limit - 1].isspace():
        return limit
    words = text[begin:limit].rsplit(None, 1)
    return limit - len(words[1]) if len(words) == 2 else limit


def _trim(text: str, begin: int, end: int, tokens: int) -> tuple[int, int, int]:
    chunk = text[begin:end]
    begin += len(chunk) - len(chunk.lstrip())
    return begin, begin + len(chunk.strip()), tokens
