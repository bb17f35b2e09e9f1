"""Whether a sentence says what its span says, by rules that need no language model.

A sentence s is grounded in span k if, with W its stemmed content words and B its content bigrams,
|W in k| / |W| >= 0.9 and |B in k| / |B| >= 0.6, k has all its numbers and names, s negates what k
negates and nothing else, and cos(s, k) > cos(s, j) for every other span j.

The rules compare words, not meanings: they bound what a sentence can add to its span. A content
word in ten may still be new, and a relation may be turned round in a long sentence.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

# Shares of content words and bigrams that the cited span must have. Every omission breaks a bigram,
# so that fewer of them can be asked for.
MIN_WORD_SHARE, MIN_BIGRAM_SHARE = 0.9, 0.6
# A sentence of fewer content words says nothing, or is the answer to an instruction in the text.
MIN_CONTENT_WORDS = 4
MAX_WORDS = 30


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_QUOTE = "\u2019"  # typographic apostrophe
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_NUMBER = re.compile(r"(?:(?<!\w)[-\u2212+])?\d+(?:[.,:]\d+)*%?")
_IN_WORDS = _words_of(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion half twice once double triple first second third"
)
_NEGATIONS = _words_of(
    "no not never none nor neither without cannot nothing nobody nowhere hardly rarely seldom "
    "scarcely barely"
)
# Words that carry no content. Quantifiers, modal verbs and negations do carry some.
_FUNCTION = _words_of(
    "a an the this that these those it its he him his she her hers they them their theirs we us "
    "our ours i me my mine you your yours who whom whose which what of in on at by to from for "
    "with as into onto upon about over under through between among during and or but so if then "
    "than also there here when where while how is are was were be been being am has have had "
    "having do does did doing such via per"
)
# Prefixes that turn a word into its contrary.
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "dis", "de", "mis", "anti")


@dataclass(frozen=True)
class Measures:
    """How much of a sentence stands in a span.

    Attributes
    ----------
    words : number of words, of any kind
    content : number of content words
    share_of_words, share_of_bigrams : shares of the content words and bigrams that the span has,
        each counted at most as often as there, since a model in a loop repeats them; 1 if none
    """

    words: int
    content: int
    share_of_words: float
    share_of_bigrams: float


def measure(sentence: str, span: str) -> Measures:
    """Return the measures of a sentence against a span."""
    words, source = _content(sentence), _content(span)
    return Measures(
        len(_words(sentence)),
        len(words),
        _share(words, source),
        _share([*pairwise(words)], [*pairwise(source)]),
    )


def refusal(sentence: str, span: str) -> str:
    """Return why a sentence is not grounded in a span, by its words; "" if it is.

    One of "empty", "characters", "long", "short", "numbers", "names", "negation", "words",
    "bigrams".

    Examples
    --------
    >>> span = "The new index answers most queries in 20 ms, without any change of the data."
    >>> refusal("The new index answers most queries in 20 ms.", span)
    ''
    >>> refusal("The new index answers most queries in 30 ms.", span)
    'numbers'
    """
    measures = measure(sentence, span)
    faults = {
        "empty": not measures.words,
        "characters": not all(letter.isprintable() for letter in sentence),
        "long": measures.words > MAX_WORDS,
        "short": measures.content < MIN_CONTENT_WORDS,
        # Each number, name and negation counts: one that is new changes what is said.
        "numbers": not _numbers(sentence) <= _numbers(span),
        "names": not _names(sentence, span) <= {*_words(span)},
        "negation": _flipped(sentence, span),
        "words": measures.share_of_words < MIN_WORD_SHARE,
        "bigrams": measures.share_of_bigrams < MIN_BIGRAM_SHARE,
    }
    return next((fault for fault, present in faults.items() if present), "")


def nearest(cosines: Sequence[float], span: int, texts: Sequence[str]) -> bool:
    """Whether a sentence is nearer to its span than to every other of the pack."""
    words = _words(texts[span])
    return all(
        # Strictly: at a tie the sentence says as much of another span.
        cosines[span] > cosine
        for at, cosine in enumerate(cosines)
        if at != span and _words(texts[at]) != words
    )


def is_excerpt(sentence: str, span: str) -> bool:
    """Whether the words of a sentence are a run of the span's words, letter by letter.

    Examples
    --------
    >>> is_excerpt("queries in 20 ms", "It answers queries in 20 ms, always.")
    True
    """
    return f" {' '.join(_words(sentence))} " in f" {' '.join(_words(span))} "


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_words(text))


def _words(text: str) -> list[str]:
    # A contraction is the same word with either apostrophe.
    return _WORD.findall(text.replace(_QUOTE, "'"))


def _share(items: Sequence[Hashable], source: Sequence[Hashable]) -> float:
    """Return the share of `items` that `source` has, each counted at most as often as there."""
    return (Counter(items) & Counter(source)).total() / len(items) if items else 1.0


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")


def _content(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order, without its negations."""
    words = [word.lower() for word in _words(text)]
    return _stems([word for word in words if word not in _FUNCTION and not _negates(word)])


def _stems(words: Sequence[str]) -> list[str]:
    return list(_stemmer().stemWords([word.removesuffix("'s") for word in words]))


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _numbers(text: str) -> set[str]:
    """Return the numbers of a text as they are written, in digits and in words."""
    return {*_NUMBER.findall(text)} | ({word.lower() for word in _words(text)} & _IN_WORDS)


def _names(sentence: str, span: str) -> set[str]:
    """Return the words with a capital, except a first word that the span has in lower case."""
    words, small = _words(sentence), {word.lower() for word in _words(span)}
    names = {word for word in words[1:] if word != word.lower()}
    first = words[0] if words else ""
    opens = first[1:] == first[1:].lower() and first.lower() in small | _FUNCTION | _NEGATIONS
    return names if opens or first == first.lower() else names | {first}


def _negated(text: str) -> list[str]:
    """Return the stem of the content word that each negation of a text comes before."""
    stems, waiting = [], 0
    for word in (word.lower() for word in _words(text)):
        if _negates(word):
            waiting += 1
        elif word not in _FUNCTION and waiting:
            stems += _stems([word]) * waiting
            waiting = 0
    return [*stems, *[""] * waiting]


def _flipped(sentence: str, span: str) -> bool:
    """Whether a sentence denies what its span says, or says what its span denies."""
    words, source = {*_content(sentence)}, {*_content(span)}
    denied, denied_in_span = {*_negated(sentence)}, {*_negated(span)}
    if not denied <= denied_in_span or (denied_in_span & words) - denied:
        return True
    return any(
        prefix + word in source or word.removeprefix(prefix) in source
        for word in words - source
        for prefix in _PREFIXES
        if prefix + word in source or word.startswith(prefix)
    )
