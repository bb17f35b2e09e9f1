"""Check by rules, without a language model, that a sentence says what its span says.

A sentence s is grounded in span k if, with W its stemmed content words and B its content bigrams,
|W in k| / |W| >= 0.9 and |B in k| / |B| >= 0.6, k has all its numbers and names, and s negates what
k negates and nothing else.

The rules compare words, not meanings: they bound what a sentence can add to its span. A content
word in ten may still be new, and a relation may be turned round in a long sentence.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
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
    count, words, source = count_words(sentence), _content(sentence), _content(span)
    # The first word has a capital in any sentence.
    names = {word for word in _words(sentence)[1:] if word != word.lower()}
    faults = {
        "empty": not count,
        "characters": not all(letter.isprintable() for letter in sentence),
        "long": count > MAX_WORDS,
        "short": len(words) < MIN_CONTENT_WORDS,
        # Each number, name and negation counts: one that is new changes what is said.
        "numbers": not _numbers(sentence) <= _numbers(span),
        "names": not names <= {*_words(span)},
        "negation": _flipped(sentence, span),
        "words": share(words, source) < MIN_WORD_SHARE,
        "bigrams": share([*pairwise(words)], [*pairwise(source)]) < MIN_BIGRAM_SHARE,
    }
    return next((fault for fault, present in faults.items() if present), "")


def share(items: Sequence[Hashable], source: Sequence[Hashable]) -> float:
    """Return the share of `items` that `source` has; 1 without items.

    Each is counted at most as often as in `source`, since a model in a loop repeats them.
    """
    return (Counter(items) & Counter(source)).total() / len(items) if items else 1.0


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_words(text))


def _words(text: str) -> list[str]:
    # A contraction is the same word with either apostrophe.
    return _WORD.findall(text.replace(_QUOTE, "'"))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")


def _content(text: str) -> list[str]:
    words = [word.lower() for word in _words(text)]
    return _stems([word for word in words if word not in _FUNCTION and not _negates(word)])


def _stems(words: Sequence[str]) -> list[str]:
    return list(_stemmer().stemWords([word.removesuffix("'s") for word in words]))


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _numbers(text: str) -> set[str]:
    return {*_NUMBER.findall(text)} | ({word.lower() for word in _words(text)} & _IN_WORDS)


def _negated(text: str) -> set[str]:
    """Return the stems of the content words that follow a negation; "" for one at the end."""
    stems, waiting = set(), False
    for word in (word.lower() for word in _words(text)):
        if _negates(word):
            waiting = True
        elif word not in _FUNCTION and waiting:
            stems.update(_stems([word]))
            waiting = False
    return stems | {""} if waiting else stems


def _flipped(sentence: str, span: str) -> bool:
    denied, denied_in_span = _negated(sentence), _negated(span)
    return not denied <= denied_in_span or bool((denied_in_span & {*_content(sentence)}) - denied)
