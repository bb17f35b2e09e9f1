"""What a sentence may say of its span: each rule by a sentence that breaks this rule alone."""

from itertools import pairwise

import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.evidence.summaries.grounding import MIN_BIGRAM_SHARE, MIN_WORD_SHARE, refusal, share

TREES = (
    "Decision tables map sets of conditions to actions. Induction of decision tables from 42 cases "
    "does not need pruning, and Kohavi's tables predict almost as well as large trees."
)
CASES = (
    "Case-based reasoning retrieves stored cases that resemble a new problem and adapts their "
    "solutions. Navigation of a robot reuses paths that were found in earlier missions."
)
NETWORKS = (
    "Robust Bayesian networks keep sets of distributions. Inference returns bounds on posterior "
    "probabilities instead of single numbers."
)


@pytest.mark.parametrize(
    "sentence",
    [
        "Induction of decision tables from 42 cases does not need pruning.",
        "Kohavi's tables predict almost as well as large trees.",
        "Decision tables map a set of conditions to an action.",
        "Tables predict almost as well as large trees.",  # a capital of the first word
    ],
)
def test_what_the_span_says_is_kept(sentence):
    assert refusal(sentence, TREES) == ""


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("", "empty"),
        ("... !", "empty"),
        ("Large trees predict.", "short"),
        ("Decision tables map conditions\x1b[2J to actions of large trees.", "characters"),
        (" ".join(["decision tables map sets of conditions to actions"] * 4), "long"),
        ("Induction of decision tables from 43 cases does not need pruning.", "numbers"),
        ("Induction of two decision tables from 42 cases does not need pruning.", "numbers"),
        ("Induction of Quinlan's tables from 42 cases does not need pruning.", "names"),
        ("Induction of decision tables from 42 cases does need pruning.", "negation"),
        ("Decision tables map no sets of conditions to actions.", "negation"),
        ("Tables never predict almost as well as large trees.", "negation"),
        ("Tables can't predict almost as well as large trees.", "negation"),
        ("Tables unpredict almost as well as large trees, sets and actions of cases.", "words"),
        ("A classifier assigns medical records to likely diseases of patients.", "words"),
        ("decision tables map sets of decision tables to tables of decision tables", "words"),
        ("Large actions map trees, cases induction tables, sets conditions.", "bigrams"),
    ],
)
def test_each_rule_refuses(sentence, fault):
    assert refusal(sentence, TREES) == fault


def test_a_topic_joined_to_the_title_of_a_neighbour_is_refused():
    """The wrong attribution that was measured: every word occurs in the pack, in two spans."""
    joined = "Robust Bayesian networks reuse paths that were found in earlier missions of a robot."
    assert refusal(joined, CASES) and refusal(joined, NETWORKS)


def test_a_minus_is_part_of_a_number():
    assert (
        refusal(
            "The offset of the channel is 5 units at start",
            "The offset of the channel is -5 units at start",
        )
        == "numbers"
    )


words = st.text("abcdefgh", min_size=1, max_size=6)
texts = st.lists(words, min_size=1, max_size=25).map(" ".join)


@given(texts, texts)
def test_shares_are_those_of_the_loops(sentence, span):
    stem = snowballstemmer.stemmer("english").stemWord
    plain = {"a", "he", "be", "had"}
    own, source = (
        [stem(word) for word in text.split() if word not in plain] for text in (sentence, span)
    )
    hits = pairs = 0
    left = list(source)
    for word in own:
        if word in left:
            left.remove(word)
            hits += 1
    left = list(pairwise(source))
    for pair in pairwise(own):
        if pair in left:
            left.remove(pair)
            pairs += 1
    words = share(own, source)
    bigrams = share([*pairwise(own)], [*pairwise(source)])
    assert words == (hits / len(own) if own else 1)
    assert bigrams == (pairs / (len(own) - 1) if len(own) > 1 else 1)
    if not refusal(sentence, span):
        assert words >= MIN_WORD_SHARE and bigrams >= MIN_BIGRAM_SHARE


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_breaks_the_rules(sentence, span):
    refusal(sentence, span)
